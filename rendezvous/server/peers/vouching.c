/*
 * vouching.c - counts authenticated agents by address and job.
 */
#include "vouching.h"

#include "list.h"
#include "mem.h"

#include <string.h>

/* A key of the table, compared by all its bytes. */
struct place {
    struct ddpi_address address;
    char job[DDPI_JOB_MAX + 1];
    char zero[3];
};

_Static_assert(sizeof(struct place) == sizeof(struct ddpi_address) + DDPI_JOB_MAX + 4,
               "it has no padding");

struct host {
    struct ddpi_table_node node;
    struct place place;
    size_t agents;
};

static struct place place_of(const struct ddpi_address *address, const char *job)
{
    struct place place = {.address = *address};
    memcpy(place.job, job, strnlen(job, DDPI_JOB_MAX));
    return place;
}

static struct host *host_find(const struct ddpi_vouching *vouching, const struct place *place)
{
    struct ddpi_table_node *node = ddpi_table_find(&vouching->hosts, place, sizeof *place);
    return node != NULL ? ddpi_container_of(node, struct host, node) : NULL;
}

void ddpi_vouch_init(struct ddpi_vouching *vouching, const uint8_t seed[DDPI_SEED_SIZE])
{
    ddpi_table_init(&vouching->hosts, seed);
}

static void host_destroy(struct ddpi_vouching *vouching, struct host *host)
{
    ddpi_table_remove(&vouching->hosts, &host->node);
    ddpi_free(host);
}

void ddpi_vouch_finish(struct ddpi_vouching *vouching)
{
    ddpi_table_finish_free(&vouching->hosts, offsetof(struct host, node));
}

bool ddpi_vouch_add(struct ddpi_vouching *vouching, const struct ddpi_address *address,
                    const char *job)
{
    const struct place place = place_of(address, job);
    struct host *host = host_find(vouching, &place);
    if (host == NULL) {
        host = ddpi_calloc(1, sizeof *host);
        if (host == NULL)
            return false;
        host->place = place;
        host->node.key = &host->place;
        host->node.key_len = sizeof host->place;
        if (!ddpi_table_insert(&vouching->hosts, &host->node)) {
            ddpi_free(host);
            return false;
        }
    }
    host->agents++;
    return true;
}

void ddpi_vouch_remove(struct ddpi_vouching *vouching, const struct ddpi_address *address,
                       const char *job)
{
    const struct place place = place_of(address, job);
    struct host *host = host_find(vouching, &place);
    if (host != NULL && --host->agents == 0)
        host_destroy(vouching, host);
}

bool ddpi_vouch_covers(const struct ddpi_vouching *vouching, const struct ddpi_address *address,
                       const char *job)
{
    const struct place of_job = place_of(address, job), of_all = place_of(address, "");
    return host_find(vouching, &of_job) != NULL || host_find(vouching, &of_all) != NULL;
}
