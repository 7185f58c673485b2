/*
 * pmi_node_state.h - the state of one node's process manager, shared by pmi_node.c and
 * pmi_node_exchange.c. pmi_node.h describes it.
 */
#ifndef DAEMON_PMI_NODE_STATE_H
#define DAEMON_PMI_NODE_STATE_H

#include "buf.h"
#include "pmi_kvs.h"
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
    PMI_KEY_MAX = 64,     /* bytes with the NUL, as in MPICH's own manager */
    PMI_VALUE_MAX = 1024, /* bytes with the NUL, likewise */
    PMI_LINE_MAX = 4096,  /* the longest command is a put */
};

/* The place of this node's ranks in one generation. */
struct pmi_place {
    char job[48]; /* its name in this generation, for ranks: they name shared memory by it */
    uint64_t generation;
    uint32_t nproc; /* ranks of this node */
    uint32_t first_rank;
    uint32_t world_size;
    uint32_t node_rank;
    uint32_t nodes;
};

/* None of these calls back into the node. */
struct pmi_node_hooks {
    void *ctx;
    /* Send @text, whole lines, to a rank of this node. */
    void (*reply)(void *ctx, uint32_t local_rank, const char *text, size_t len);
    /* End the connection to the rank. */
    void (*hang_up)(void *ctx, uint32_t local_rank);
    /* The rank has called MPI_Abort, and waits to be killed. */
    void (*aborted)(void *ctx, uint32_t local_rank, int exit_code);
    /* Send @text to all other nodes as this node's text of exchange @number, counted from 0. Their
     * texts come back through pmi_node_exchange_text(). Not called in a job of one node. */
    ddp_status (*exchange)(void *ctx, uint32_t number, const char *text, size_t len,
                           struct ddp_error *err);
    /* Show a line on the console. */
    void (*say)(void *ctx, const char *line);
};

struct pmi_rank {
    struct ddpi_sm sm;
    bool wants_mapping; /* has asked where ranks are; the answer is not known yet */
    bool in_command;    /* "mcmd=": lines follow until "endcmd" */
    uint32_t programs;  /* how many such commands are answered as one */
    uint32_t program;   /* which of them this is, from 1 */
    bool told;          /* that no ranks can be spawned */
};

struct pmi_node {
    struct pmi_place place;
    struct pmi_node_hooks hooks;
    struct pmi_kvs kvs;
    struct pmi_kvs names; /* that ranks have published; the value "" is none */
    struct ddpi_buf put;  /* the text of the next exchange */
    uint32_t *nprocs;     /* of each node; 0: not known yet */
    bool *heard;          /* nodes whose text of this exchange has arrived */
    uint32_t missing;     /* texts that have not arrived */
    uint32_t exchanges;   /* begun so far */
    bool exchanging;      /* one is under way */
    bool broken;          /* no barrier can complete any more */
    bool spoken;          /* a rank has sent init */
    bool left;            /* @left_rank of this node cannot reach another barrier */
    uint32_t left_rank;
    struct pmi_rank ranks[];
};

#endif
