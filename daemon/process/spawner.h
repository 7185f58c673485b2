/*
 * spawner.h - starts processes on threads of its own: one after the other, or several at once on as
 * many processors. spawn_process() blocks until exec, which may take seconds (a virus scanner, a
 * file system that does not answer), and must not block the loop.
 */
#ifndef DAEMON_SPAWNER_H
#define DAEMON_SPAWNER_H

#include "list.h"
#include "spawn.h"

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

enum { SPAWNER_THREADS_MAX = 4 };

/* Owned by the caller, who keeps it and all that the request points to until done(). */
struct spawner_task {
    struct spawn_request request;
    /* What starts it; NULL: spawn_process(). */
    ddp_status (*start)(const struct spawn_request *request, struct spawn_child *ret_child,
                        struct ddp_error *err);
    ddp_status status;        /* of start(), or DDP_E_CANCELED after spawner_cancel() */
    struct spawn_child child; /* DDP_OK: owned by the caller */
    struct ddp_error error;   /* what start() has set */
    struct ddpi_list of_spawner;
};

struct spawner {
    uv_async_t news;
    void (*done)(void *ctx, struct spawner_task *task);
    void *ctx;
    bool open;
    bool left; /* closed while a thread was blocked in the kernel: exit without joining them */
    pthread_t threads[SPAWNER_THREADS_MAX];
    unsigned started, most; /* threads; all but the first are started when there is work for them */
    pthread_mutex_t lock;   /* of all members below */
    pthread_cond_t more;
    struct ddpi_list waiting, ended; /* spawner_task::of_spawner */
    unsigned queued;                 /* tasks in @waiting */
    unsigned busy;                   /* threads that start a process */
    bool over;
};

/* At most @threads start processes at once. @done is called from the loop for each task, in order
 * if there is one thread. */
DDP_MUST_CHECK ddp_status spawner_open(struct spawner *spawner, uv_loop_t *loop, unsigned threads,
                                       void (*done)(void *ctx, struct spawner_task *task),
                                       void *ctx, struct ddp_error *err);

/* Queue @task. */
void spawner_start(struct spawner *spawner, struct spawner_task *task);

/* Do not start the queued tasks; done() is called for each. One that is being started goes on. */
void spawner_cancel(struct spawner *spawner);

/* The handle closes while the loop turns. The processes that it started die with its threads. */
void spawner_close(struct spawner *spawner);

#endif
