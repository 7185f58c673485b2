/*
 * perf_node.c - sets DDP_HOST_ID of a rank. Owns nothing.
 */
#include "perf_node.h"

#include "error.h"
#include "parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

ddp_status perf_pretend_node(int64_t nodes, struct ddp_error *err)
{
    int64_t rank = 0, world = 1;
    char node[32];
    const char *rank_text = getenv("RANK"), *world_text = getenv("WORLD_SIZE");
    if (nodes == 0 || rank_text == NULL || world_text == NULL)
        return DDP_OK;
    ddp_status status = ddpi_parse_int(rank_text, 0, INT32_MAX, &rank, err);
    if (status == DDP_OK)
        status = ddpi_parse_int(world_text, 1, INT32_MAX, &world, err);
    if (status != DDP_OK)
        return status;
    snprintf(node, sizeof node, "%" PRId64, rank * nodes / world);
    return setenv("DDP_HOST_ID", node, 1) == 0 ? DDP_OK
                                               : ddpi_error_sys(err, errno, "set DDP_HOST_ID");
}
