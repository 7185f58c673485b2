/*
 * spawner.h - starts processes on a thread of its own, one after the other. spawn_process() blocks
 * until exec, which may take seconds (a virus scanner, a file system that does not answer), and
 * must not block the loop.
 */
#ifndef DAEMON_SPAWNER_H
#define DAEMON_SPAWNER_H

#include "list.h"
#include "spawn.h"

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

/* Owned by the caller, who keeps it and all that the request points to until done(). */
struct spawner_task {
    struct spawn_request request;
    ddp_status status;        /* of spawn_process(), or DDP_E_CANCELED after spawner_cancel() */
    struct spawn_child child; /* DDP_OK: owned by the caller */
    struct ddp_error error;   /* not DDP_OK */
    struct ddpi_list of_spawner;
};

struct spawner {
    uv_async_t news;
    void (*done)(void *ctx, struct spawner_task *task);
    void *ctx;
    bool open;
    bool left; /* closed while the thread was blocked in the kernel: exit without joining it */
    pthread_t thread;
    pthread_mutex_t lock; /* of all members below */
    pthread_cond_t more;
    struct ddpi_list waiting, ended; /* spawner_task::of_spawner */
    bool busy, over;
};

/* @done is called from the loop for each task, in order. */
DDP_MUST_CHECK ddp_status spawner_open(struct spawner *spawner, uv_loop_t *loop,
                                       void (*done)(void *ctx, struct spawner_task *task),
                                       void *ctx, struct ddp_error *err);

/* Queue @task. */
void spawner_start(struct spawner *spawner, struct spawner_task *task);

/* Do not start the queued tasks; done() is called for each. The task that is being started goes on.
 */
void spawner_cancel(struct spawner *spawner);

/* The handle closes while the loop turns. The processes that it started die with its thread. */
void spawner_close(struct spawner *spawner);

#endif
