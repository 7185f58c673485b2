/*
 * pmix_tasks.c - see pmix_tasks.h.
 */
#include "pmix_tasks.h"

static struct pmix_task *take_task(struct pmix_tasks *tasks)
{
    struct pmix_task *task = NULL;
    pthread_mutex_lock(&tasks->lock);
    if (!ddpi_list_empty(&tasks->queue)) {
        task = ddpi_container_of(tasks->queue.next, struct pmix_task, of_queue);
        ddpi_list_remove(&task->of_queue);
    }
    pthread_mutex_unlock(&tasks->lock);
    return task;
}

static void on_task_news(uv_async_t *news)
{
    struct pmix_task *task;
    while ((task = take_task(news->data)) != NULL)
        task->run(task);
}

int pmix_tasks_open(struct pmix_tasks *tasks, uv_loop_t *loop)
{
    ddpi_list_init(&tasks->queue);
    pthread_mutex_init(&tasks->lock, NULL);
    tasks->news.data = tasks;
    return uv_async_init(loop, &tasks->news, on_task_news);
}

void pmix_task_post(struct pmix_tasks *tasks, struct pmix_task *task)
{
    pthread_mutex_lock(&tasks->lock);
    ddpi_list_append(&tasks->queue, &task->of_queue);
    pthread_mutex_unlock(&tasks->lock);
    uv_async_send(&tasks->news);
}
