/*
 * spawner.c - the threads that call spawn_process(). Owns them, and two lists of tasks. A thread
 * must outlive the processes, which die with the thread that made them. They touch nothing of the
 * agent but the tasks.
 */
#include "spawner.h"

#include "error.h"
#include "thread.h"

#include <string.h>

enum { STACK_SIZE = 256 * 1024 }; /* the child's stack is on it */

static struct spawner_task *take_first_task(struct ddpi_list *list)
{
    struct spawner_task *task = ddpi_container_of(list->next, struct spawner_task, of_spawner);
    ddpi_list_remove(&task->of_spawner);
    return task;
}

/* Called with the lock held. */
static void return_task(struct spawner *spawner, struct spawner_task *task)
{
    ddpi_list_append(&spawner->ended, &task->of_spawner);
    if (!spawner->over)
        uv_async_send(&spawner->news);
}

/* Called with the lock held; releases it while the process is started. */
static void start_one(struct spawner *spawner, struct spawner_task *task)
{
    spawner->queued--;
    spawner->busy++;
    pthread_mutex_unlock(&spawner->lock);
    task->status = (task->start != NULL ? task->start : spawn_process)(&task->request, &task->child,
                                                                       &task->error);
    pthread_mutex_lock(&spawner->lock);
    spawner->busy--;
    return_task(spawner, task);
}

static void *spawner_main(void *arg)
{
    struct spawner *spawner = arg;
    pthread_mutex_lock(&spawner->lock);
    while (!spawner->over) {
        if (ddpi_list_empty(&spawner->waiting))
            pthread_cond_wait(&spawner->more, &spawner->lock);
        else
            start_one(spawner, take_first_task(&spawner->waiting));
    }
    pthread_mutex_unlock(&spawner->lock);
    return NULL;
}

/* Tasks that end during the calls of done() wait for the next turn of the loop. */
static void on_tasks_ended(uv_async_t *async)
{
    struct spawner *spawner = async->data;
    struct ddpi_list news;
    ddpi_list_init(&news);
    pthread_mutex_lock(&spawner->lock);
    ddpi_list_move_all(&news, &spawner->ended);
    pthread_mutex_unlock(&spawner->lock);
    while (!ddpi_list_empty(&news))
        spawner->done(spawner->ctx, take_first_task(&news));
}

static int add_thread(struct spawner *spawner)
{
    int sys_errno =
        ddpi_thread_start(&spawner->threads[spawner->started], STACK_SIZE, spawner_main, spawner);
    spawner->started += sys_errno == 0;
    return sys_errno;
}

ddp_status spawner_open(struct spawner *spawner, uv_loop_t *loop, unsigned threads,
                        void (*done)(void *ctx, struct spawner_task *task), void *ctx,
                        struct ddp_error *err)
{
    memset(spawner, 0, sizeof *spawner);
    spawner->done = done;
    spawner->ctx = ctx;
    spawner->most = threads < SPAWNER_THREADS_MAX ? threads : SPAWNER_THREADS_MAX;
    ddpi_list_init(&spawner->waiting);
    ddpi_list_init(&spawner->ended);
    pthread_mutex_init(&spawner->lock, NULL);
    pthread_cond_init(&spawner->more, NULL);
    int sys_errno = -uv_async_init(loop, &spawner->news, on_tasks_ended);
    if (sys_errno == 0) {
        spawner->news.data = spawner;
        sys_errno = add_thread(spawner);
        spawner->open = sys_errno == 0;
        if (!spawner->open)
            uv_close((uv_handle_t *)&spawner->news, NULL);
    }
    return spawner->open
               ? DDP_OK
               : ddpi_error_sys(err, sys_errno, "cannot make the thread that starts workers");
}

/* A thread that cannot be made is not needed: the others go on. */
void spawner_start(struct spawner *spawner, struct spawner_task *task)
{
    pthread_mutex_lock(&spawner->lock);
    ddpi_list_append(&spawner->waiting, &task->of_spawner);
    spawner->queued++;
    if (spawner->queued > spawner->started - spawner->busy && spawner->started < spawner->most)
        (void)add_thread(spawner);
    pthread_cond_signal(&spawner->more);
    pthread_mutex_unlock(&spawner->lock);
}

void spawner_cancel(struct spawner *spawner)
{
    pthread_mutex_lock(&spawner->lock);
    while (!ddpi_list_empty(&spawner->waiting)) {
        struct spawner_task *task = take_first_task(&spawner->waiting);
        spawner->queued--;
        task->status = DDP_E_CANCELED;
        return_task(spawner, task);
    }
    pthread_mutex_unlock(&spawner->lock);
}

void spawner_close(struct spawner *spawner)
{
    if (!spawner->open)
        return;
    pthread_mutex_lock(&spawner->lock);
    spawner->over = true;
    spawner->left = spawner->busy > 0;
    pthread_cond_broadcast(&spawner->more);
    pthread_mutex_unlock(&spawner->lock);
    spawner->open = false;
    uv_close((uv_handle_t *)&spawner->news, NULL);
    for (unsigned i = 0; i < spawner->started; i++)
        (spawner->left ? pthread_detach(spawner->threads[i])
                       : pthread_join(spawner->threads[i], NULL));
    if (spawner->left)
        return;
    pthread_cond_destroy(&spawner->more);
    pthread_mutex_destroy(&spawner->lock);
}
