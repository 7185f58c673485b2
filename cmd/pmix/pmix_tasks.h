/*
 * pmix_tasks.h - passes work from libpmix's thread to the loop's.
 */
#ifndef CMD_PMIX_TASKS_H
#define CMD_PMIX_TASKS_H

#include "list.h"

#include <pthread.h>
#include <uv.h>

/* A member of what the work is about. */
struct pmix_task {
    struct ddpi_list of_queue;
    void (*run)(struct pmix_task *task);
};

struct pmix_tasks {
    uv_async_t news;
    pthread_mutex_t lock; /* of @queue */
    struct ddpi_list queue;
};

/* Returns 0 or an error of libuv's. */
int pmix_tasks_open(struct pmix_tasks *tasks, uv_loop_t *loop);

/* Run @task from the loop, after those posted before. From any thread. */
void pmix_task_post(struct pmix_tasks *tasks, struct pmix_task *task);

#endif
