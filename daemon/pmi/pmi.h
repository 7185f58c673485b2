/*
 * pmi.h - the process manager that this node's MPI ranks talk to (pmi_node.h), on the agent's loop.
 * Owns a socket for each worker of the generation that runs, its half-read lines, and the node.
 *
 * A worker is given its end at birth (PMI_FD). One that is no MPI program never uses it, and costs
 * its socket pair.
 */
#ifndef DAEMON_PMI_H
#define DAEMON_PMI_H

#include "pmi_node.h"

#include <uv.h>

struct pmi;

/* One text for all other nodes of a generation, and theirs for us. */
struct pmi_exchange {
    struct pmi *pmi; /* for pmi_heard() and pmi_cut_off() */
    uint64_t generation;
    uint32_t number; /* in that generation, from 0 */
    uint32_t node_rank;
    uint32_t nodes;
    const char *text; /* valid during the call */
    size_t len;
};

/* The way to the other nodes of the job. */
struct pmi_link {
    void *ctx;
    /* pmi_heard() is called for each other node, or pmi_cut_off(); from the loop, not from within.
     */
    ddp_status (*exchange)(void *ctx, const struct pmi_exchange *exchange, struct ddp_error *err);
    /* The generation is over: neither is called any more. */
    void (*forget)(void *ctx);
};

struct pmi_hooks {
    void *ctx;
    void (*say)(void *ctx, const char *line);
    void (*aborted)(void *ctx, uint32_t local_rank, int exit_code);
    /* Its socket has ended. Unless its process is about to fail, call pmi_rank_gone(). */
    void (*unplugged)(void *ctx, uint32_t local_rank);
};

struct pmi {
    uv_loop_t *loop;
    struct pmi_hooks hooks;
    const struct pmi_link *link; /* NULL: there is one node only */
    struct pmi_node *node;       /* NULL: no generation runs */
    struct pmi_place place;
    struct pmi_channel **channels; /* by local rank; NULL: there is none, or it has ended */
};

void pmi_init(struct pmi *pmi, uv_loop_t *loop, const struct pmi_link *link,
              const struct pmi_hooks *hooks);

/* A generation begins, or has ended: the sockets are closed, and the loop frees them. */
DDP_MUST_CHECK ddp_status pmi_begin(struct pmi *pmi, const struct pmi_place *place,
                                    struct ddp_error *err);
void pmi_end(struct pmi *pmi);

/* Make a worker's socket; *@ret_fd is the end that goes to the worker, for the caller to close. */
DDP_MUST_CHECK ddp_status pmi_connect(struct pmi *pmi, uint32_t local_rank, int *ret_fd,
                                      struct ddp_error *err);

/* A worker has ended with exit code 0, or goes on without its socket: those that wait for it in MPI
 * wait in vain. One that fails ends the generation, which needs no more. */
void pmi_rank_gone(struct pmi *pmi, uint32_t local_rank);

/* From the link. */
void pmi_heard(struct pmi *pmi, uint32_t from_node, const char *text, size_t len);
void pmi_cut_off(struct pmi *pmi, const char *why);

#endif
