/*
 * pmix_place.c - see pmix_place.h.
 */
#include "pmix_place.h"

#include "error.h"
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ddp_status read_text(const char *name, const char **ret, struct ddp_error *err)
{
    *ret = getenv(name);
    return *ret != NULL && strlen(*ret) < PLACE_NAME_SIZE
               ? DDP_OK
               : ddpi_error_set(err, DDP_E_INVALID, "%s is not set, or too long", name);
}

static ddp_status read_number(const char *name, uint32_t *ret, struct ddp_error *err)
{
    const char *text;
    int64_t number;
    ddp_status status = read_text(name, &text, err);
    if (status == DDP_OK)
        status = ddpi_parse_int(text, 0, INT32_MAX, &number, err);
    if (status == DDP_OK)
        *ret = (uint32_t)number;
    return status;
}

static ddp_status read_name(const char *name, char ret[PLACE_NAME_SIZE], struct ddp_error *err)
{
    const char *text;
    ddp_status status = read_text(name, &text, err);
    if (status == DDP_OK)
        snprintf(ret, PLACE_NAME_SIZE, "%s", text);
    return status;
}

/* As a worker of this node would connect to the store. */
static void read_store(struct ddp_store_options *store)
{
    uint32_t token_fd = 0;
    const char *tls = getenv("DDPRUN_TLS");
    (void)!read_number("DDPRUN_TOKEN_FD", &token_fd, NULL);
    *store = (struct ddp_store_options){
        .size = sizeof *store,
        .endpoint = getenv("DDPRUN_STORE"),
        .prefix = getenv("DDPRUN_STORE_PREFIX"),
        .token_fd = (int)token_fd,
        .flags = tls != NULL && strcmp(tls, "1") == 0 ? DDP_STORE_TLS : 0,
    };
}

ddp_status pmix_place_read(struct pmix_place *place, struct ddp_error *err)
{
    *place = (struct pmix_place){.world_size = 0};
    const struct {
        const char *name;
        uint32_t *number;
    } numbers[] = {{"RANK", &place->own.first_rank},
                   {"LOCAL_WORLD_SIZE", &place->own.nproc},
                   {"WORLD_SIZE", &place->world_size},
                   {"GROUP_RANK", &place->node_rank},
                   {"GROUP_WORLD_SIZE", &place->node_count}};
    ddp_status status = read_name("PMIX_NAMESPACE", place->nspace, err);
    if (status == DDP_OK)
        status = read_name("PMIX_HOSTNAME", place->own.host, err);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == DDP_OK; i++)
        status = read_number(numbers[i].name, numbers[i].number, err);
    const struct pmix_node *own = &place->own;
    if (status == DDP_OK &&
        (place->node_rank >= place->node_count || own->nproc == 0 ||
         own->nproc > place->world_size || own->first_rank > place->world_size - own->nproc))
        status = ddpi_error_set(err, DDP_E_INVALID, "the variables of ranks and nodes do not fit");
    read_store(&place->store);
    return status;
}
