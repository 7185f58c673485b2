/*
 * nodes.h - which ranks of a communicator share memory: its nodes. Pure.
 *
 * A node is a row of ranks with consecutive numbers that share memory; launchers number the ranks
 * of a machine so. Ranks of one machine between which others lie are in different nodes.
 */
#ifndef DDPI_NODES_H
#define DDPI_NODES_H

#include <stdbool.h>
#include <stdint.h>

struct ddpi_nodes {
    uint32_t *firsts; /* the first rank of each node, and at last the number of ranks */
    uint32_t count;
    uint32_t own;   /* the node of this rank */
    uint32_t width; /* ranks of the smallest node */
    uint32_t most;  /* and of the largest one */
};

/* Find the nodes of @nranks ranks, at least 1, for @rank. @joins tells whether a rank shares memory
 * with the one before it. @firsts is the caller's, and has room for @nranks + 1 numbers. */
void ddpi_nodes_find(struct ddpi_nodes *nodes, uint32_t *firsts, uint32_t rank, uint32_t nranks,
                     bool (*joins)(const void *ctx, uint32_t rank), const void *ctx);

static inline uint32_t ddpi_node_first(const struct ddpi_nodes *nodes)
{
    return nodes->firsts[nodes->own];
}

/* Ranks of the own node. */
static inline uint32_t ddpi_node_ranks(const struct ddpi_nodes *nodes)
{
    return nodes->firsts[nodes->own + 1] - nodes->firsts[nodes->own];
}

static inline bool ddpi_node_has(const struct ddpi_nodes *nodes, uint32_t rank)
{
    return rank >= nodes->firsts[nodes->own] && rank < nodes->firsts[nodes->own + 1];
}

#endif
