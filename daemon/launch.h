/*
 * launch.h - turns a worker's place in the job into a running process.
 */
#ifndef DAEMON_LAUNCH_H
#define DAEMON_LAUNCH_H

#include "agent_config.h"
#include "worker_proc.h"

#include <ddprun/round.h>

/* What all workers of one generation have in common. */
struct launch {
    const struct agent_config *config;
    struct logmux *mux;
    uv_loop_t *loop;
    const struct ddp_round_seat *seat;
    int life_fd;      /* of life.h; 0: there is none */
    uint32_t attempt; /* counts generations on this node, from 0 */
    int key_fd;       /* what they prove themselves with to the store; 0: nothing */
};

/* Start @worker. On failure its streams may be open and will end by themselves, and a process that
 * has been started all the same is RUNNING. */
DDP_MUST_CHECK ddp_status launch_worker(const struct launch *launch, struct worker_proc *worker,
                                        struct ddp_error *err);

#endif
