/*
 * pmi_node.h - the process manager's side of PMI-1, the text protocol by which MPICH's programs
 * (and those of its relatives) find each other: this node's part in one generation. Pure: lines of
 * ranks and texts of other nodes go in, replies and texts for other nodes come out.
 *
 * A rank puts keys, waits in a barrier until all ranks have, and gets the keys of others. So keys
 * travel with barriers: when all ranks of this node wait, the node gives what they have put to all
 * other nodes, and its ranks go on when it has the texts of all. Every get is then answered here.
 *
 *     SILENT --init--> OPEN --barrier_in--> WAITING --all nodes are there--> OPEN
 *                        +--finalize--> FINALIZED
 *     any --its socket or its process has ended, or it does not keep to the protocol--> GONE
 *
 * Who is GONE without having said finalize comes to no barrier: the others are told, as they would
 * wait for ever. Who has said it may end its connection, and MPICH does.
 *
 * A rank that is SILENT is no MPI program, as far as anybody knows.
 *
 * The protocol as MPICH 4.0 speaks it: src/pmi/simple/simple_pmi.c there.
 */
#ifndef DAEMON_PMI_NODE_H
#define DAEMON_PMI_NODE_H

#include "sm.h"

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#define PMI_RANK_STATES(X)                                                                       \
    X(PMI_RANK, SILENT, DDPI_SM_TO(PMI_RANK_OPEN) | DDPI_SM_TO(PMI_RANK_GONE), DDPI_SM_INITIAL)  \
    X(PMI_RANK, OPEN,                                                                            \
      DDPI_SM_TO(PMI_RANK_WAITING) | DDPI_SM_TO(PMI_RANK_FINALIZED) | DDPI_SM_TO(PMI_RANK_GONE), \
      0)                                                                                         \
    X(PMI_RANK, WAITING, DDPI_SM_TO(PMI_RANK_OPEN) | DDPI_SM_TO(PMI_RANK_GONE), 0)               \
    X(PMI_RANK, FINALIZED, DDPI_SM_TO(PMI_RANK_GONE), 0)                                         \
    X(PMI_RANK, GONE, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(pmi_rank, PMI_RANK_STATES);

enum {
    PMI_KEY_MAX = 64,     /* bytes, with a NUL, as MPICH's own manager has it */
    PMI_VALUE_MAX = 1024, /* the same */
    PMI_LINE_MAX = 4096,  /* of a rank; its longest is a put */
};

/* Where this node's ranks are in the world of one generation. */
struct pmi_place {
    uint64_t generation;
    uint32_t nproc; /* ranks of this node */
    uint32_t first_rank;
    uint32_t world_size;
    uint32_t node_rank;
    uint32_t nodes;
};

/* Who is told what. None of them calls back. */
struct pmi_node_hooks {
    void *ctx;
    /* Send @text, whole lines, to a rank of this node. */
    void (*reply)(void *ctx, uint32_t local_rank, const char *text, size_t len);
    /* End the connection to it: nothing that it asks can be answered. */
    void (*hang_up)(void *ctx, uint32_t local_rank);
    /* It has called MPI_Abort, and waits to be ended. */
    void (*aborted)(void *ctx, uint32_t local_rank, int exit_code);
    /* Give @text to all other nodes as ours of exchange @number; pmi_node_text() is to be called
     * with theirs. They are numbered from 0, and follow each other. Not called on a single node. */
    ddp_status (*exchange)(void *ctx, uint32_t number, const char *text, size_t len,
                           struct ddp_error *err);
    /* One line for people: why ranks are left without an answer. */
    void (*say)(void *ctx, const char *line);
};

struct pmi_node;

/* NULL: no memory. */
struct pmi_node *pmi_node_create(const struct pmi_place *place, const struct pmi_node_hooks *hooks);
void pmi_node_destroy(struct pmi_node *node);

/* A line of a rank, without its end. */
void pmi_node_line(struct pmi_node *node, uint32_t local_rank, const char *line, size_t len);

/* A rank's connection has ended, or its process has with exit code 0. */
void pmi_node_gone(struct pmi_node *node, uint32_t local_rank);

/* The text of node @from in the exchange that is under way. */
void pmi_node_text(struct pmi_node *node, uint32_t from, const char *text, size_t len);

/* The other nodes cannot be reached: whoever waits is left without an answer. */
void pmi_node_cut_off(struct pmi_node *node, const char *why);

unsigned pmi_node_state(const struct pmi_node *node, uint32_t local_rank);

#endif
