/*
 * keeper_child.h - a process that belongs to the keeper: it dies with it, and its end is an event
 * of the loop.
 */
#ifndef CMD_KEEPER_CHILD_H
#define CMD_KEEPER_CHILD_H

#include "spawn.h"

#include <uv.h>

/* Zeroed: there is none. */
struct keeper_child {
    pid_t pid; /* 0: none */
    int pidfd;
    int wait_status; /* of the last one that ended */
    uint64_t started_ms;
    uv_poll_t poll;
    void (*ended)(struct keeper_child *child); /* from the loop; another one may be started */
    void *ctx;
};

/* Set @ended and @ctx before. */
DDP_MUST_CHECK ddp_status keeper_child_start(struct keeper_child *child, uv_loop_t *loop,
                                             const struct spawn_request *request,
                                             struct ddp_error *err);
/* Send a signal, if there is one. */
void keeper_child_signal(const struct keeper_child *child, int signum);

static inline bool keeper_child_runs(const struct keeper_child *child)
{
    return child->pid != 0;
}

/* "ended with exit code 1", "was killed by signal 9 (Killed)". */
void keeper_child_describe(const struct keeper_child *child, char *text, size_t size);

#endif
