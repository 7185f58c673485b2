/*
 * pmi.h - the process manager for this node's MPI ranks (pmi_node.h), on the agent's loop. Owns a
 * socket for each worker of the current generation, its unfinished lines, and the node.
 *
 * Every worker inherits its end of the socket (PMI_FD), even if it is no MPI program.
 */
#ifndef DAEMON_PMI_H
#define DAEMON_PMI_H

#include "pmi_node.h"

#include <uv.h>

struct pmi;

/* One exchange of texts with all other nodes of a generation. */
struct pmi_exchange {
    struct pmi *pmi; /* for pmi_heard() and pmi_cut_off() */
    uint64_t generation;
    uint32_t number; /* in that generation, from 0 */
    uint32_t node_rank;
    uint32_t nodes;
    const char *text; /* valid during the call */
    size_t len;
};

/* The link to the other nodes of the job. */
struct pmi_link {
    void *ctx;
    /* Answered by pmi_heard() for each other node, or by pmi_cut_off(), later from the loop. */
    ddp_status (*exchange)(void *ctx, const struct pmi_exchange *exchange, struct ddp_error *err);
    /* The generation is over: call neither any more. */
    void (*forget)(void *ctx);
};

struct pmi_hooks {
    void *ctx;
    void (*say)(void *ctx, const char *line);
    void (*aborted)(void *ctx, uint32_t local_rank, int exit_code);
    /* The rank has closed its socket. Unless its process is failing, call pmi_rank_gone(). */
    void (*unplugged)(void *ctx, uint32_t local_rank);
};

struct pmi {
    uv_loop_t *loop;
    struct pmi_hooks hooks;
    const struct pmi_link *link; /* NULL: one node */
    struct pmi_node *node;       /* NULL: no generation */
    struct pmi_place place;
    struct pmi_channel **channels; /* by local rank; NULL: none */
};

void pmi_init(struct pmi *pmi, uv_loop_t *loop, const struct pmi_link *link,
              const struct pmi_hooks *hooks);

/* A generation begins, or has ended. pmi_end() closes the sockets; the loop frees them. */
DDP_MUST_CHECK ddp_status pmi_begin(struct pmi *pmi, const struct pmi_place *place,
                                    struct ddp_error *err);
void pmi_end(struct pmi *pmi);

/* Make a worker's socket. *@ret_fd is the worker's end; the caller closes it. */
DDP_MUST_CHECK ddp_status pmi_connect(struct pmi *pmi, uint32_t local_rank, int *ret_fd,
                                      struct ddp_error *err);

/* A worker has exited with 0, or continues without its socket, so it cannot reach an MPI barrier.
 * Not needed for a worker that fails: it ends the generation. */
void pmi_rank_gone(struct pmi *pmi, uint32_t local_rank);

/* Events of the link. */
void pmi_heard(struct pmi *pmi, uint32_t from_node, const char *text, size_t len);
void pmi_cut_off(struct pmi *pmi, const char *why);

#endif
