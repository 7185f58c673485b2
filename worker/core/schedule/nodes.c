/*
 * nodes.c - rows of ranks that share memory. Pure.
 */
#include "nodes.h"

static void count_ranks(struct ddpi_nodes *nodes)
{
    for (uint32_t node = 0; node < nodes->count; node++) {
        uint32_t ranks = nodes->firsts[node + 1] - nodes->firsts[node];
        if (node == 0 || ranks < nodes->width)
            nodes->width = ranks;
        if (ranks > nodes->most)
            nodes->most = ranks;
    }
}

void ddpi_nodes_find(struct ddpi_nodes *nodes, uint32_t *firsts, uint32_t rank, uint32_t nranks,
                     bool (*joins)(const void *ctx, uint32_t rank), const void *ctx)
{
    *nodes = (struct ddpi_nodes){.firsts = firsts};
    for (uint32_t i = 0; i < nranks; i++) {
        if (i == 0 || !joins(ctx, i))
            firsts[nodes->count++] = i;
        if (i == rank)
            nodes->own = nodes->count - 1;
    }
    firsts[nodes->count] = nranks;
    count_ranks(nodes);
}
