/*
 * spawner.h - starts processes on a thread of its own, one after the other. Whoever starts one
 * stands still until the program has been executed, which may take seconds (a scanner that looks at
 * it first, a file system that does not answer): so it is not the loop that does.
 */
#ifndef DAEMON_SPAWNER_H
#define DAEMON_SPAWNER_H

#include "list.h"
#include "spawn.h"

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

/* The caller's, with all that the request points to, until it is done. */
struct spawner_task {
    struct spawn_request request;
    ddp_status status;        /* of spawn_process(); DDP_E_CANCELED: spawner_cancel() was earlier */
    struct spawn_child child; /* DDP_OK: the caller's */
    struct ddp_error error;   /* otherwise */
    struct ddpi_list of_spawner;
};

struct spawner {
    uv_async_t news;
    void (*done)(void *ctx, struct spawner_task *task);
    void *ctx;
    bool open;
    bool left; /* closed while the kernel still held the thread: the process must end without it */
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t more;
    struct ddpi_list waiting, ended; /* spawner_task::of_spawner */
    bool busy, over;
};

/* @done is told of each job from the loop, in their order. */
DDP_MUST_CHECK ddp_status spawner_open(struct spawner *spawner, uv_loop_t *loop,
                                       void (*done)(void *ctx, struct spawner_task *task),
                                       void *ctx, struct ddp_error *err);

/* Start task->request, behind those that wait. */
void spawner_start(struct spawner *spawner, struct spawner_task *task);

/* Those that wait are not to be started; done() follows for each. The one that is being started
 * goes on. */
void spawner_cancel(struct spawner *spawner);

/* The handle closes while the loop turns. Processes that it has started end with it. */
void spawner_close(struct spawner *spawner);

#endif
