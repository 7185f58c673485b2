/*
 * single_node.h - the rounds of a job that has one node: the same machine that a store's server
 * runs for many (rounds.h), with its one member in the same process.
 */
#ifndef CMD_SINGLE_NODE_H
#define CMD_SINGLE_NODE_H

#include "membership.h"
#include "rounds.h"

#include <uv.h>

struct local_job {
    struct ddpi_rounds *rounds;
    struct membership *membership; /* the one member; borrowed */
    struct ddp_round_seat seat;    /* to be told */
    bool seated;                   /* it has not been told yet */
    uv_idle_t soon;                /* active: the machine has something to do */
    /* A generation is about to start: *@seat says where its workers meet. */
    ddp_status (*begin)(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                        struct ddp_error *err);
    void *ctx;
};

/* On failure, too, local_job_close() follows. */
DDP_MUST_CHECK ddp_status local_job_init(struct local_job *job, uv_loop_t *loop,
                                         struct membership *membership, struct ddp_error *err);

/* What its member publishes. */
void local_job_publish(struct local_job *job, const struct ddp_round_member *says);

/* Nothing happens to a job that is all zero. */
void local_job_close(struct local_job *job);

#endif
