/*
 * admission.c - the count of proven agents by address.
 */
#include "admission.h"

#include "list.h"
#include "mem.h"

struct host {
    struct ddpi_table_node node;
    struct ddpi_address address;
    size_t agents;
};

static struct host *find(const struct ddpi_admission *admission, const struct ddpi_address *address)
{
    struct ddpi_table_node *node = ddpi_table_find(&admission->hosts, address, sizeof *address);
    return node != NULL ? ddpi_container_of(node, struct host, node) : NULL;
}

void ddpi_admission_init(struct ddpi_admission *admission, const uint8_t seed[DDPI_SEED_SIZE])
{
    ddpi_table_init(&admission->hosts, seed);
}

static void forget(struct ddpi_admission *admission, struct host *host)
{
    ddpi_table_remove(&admission->hosts, &host->node);
    ddpi_free(host);
}

void ddpi_admission_finish(struct ddpi_admission *admission)
{
    struct ddpi_table_iter iter = {0};
    struct ddpi_table_node *node;
    while ((node = ddpi_table_next(&admission->hosts, &iter)) != NULL)
        ddpi_free(ddpi_container_of(node, struct host, node));
    ddpi_table_finish(&admission->hosts);
}

bool ddpi_admission_enter(struct ddpi_admission *admission, const struct ddpi_address *address)
{
    struct host *host = find(admission, address);
    if (host == NULL) {
        host = ddpi_calloc(1, sizeof *host);
        if (host == NULL)
            return false;
        host->address = *address;
        host->node.key = &host->address;
        host->node.key_len = sizeof host->address;
        if (!ddpi_table_insert(&admission->hosts, &host->node)) {
            ddpi_free(host);
            return false;
        }
    }
    host->agents++;
    return true;
}

void ddpi_admission_leave(struct ddpi_admission *admission, const struct ddpi_address *address)
{
    struct host *host = find(admission, address);
    if (host != NULL && --host->agents == 0)
        forget(admission, host);
}

bool ddpi_admission_vouched(const struct ddpi_admission *admission,
                            const struct ddpi_address *address)
{
    return find(admission, address) != NULL;
}
