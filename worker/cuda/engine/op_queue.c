/*
 * op_queue.c - the operations of a communicator that are enqueued, and the thread that runs them
 * one by one. Owns the thread and the lock.
 *
 * On the caller's stream an operation is two words: the stream stamps "arrived", and is held until
 * "gate" reaches the operation's ticket. So whatever happens to other ranks, the stream goes on
 * when the thread sets one word: after the operation, or after its failure.
 */
#include "op_queue.h"

#include "clock.h"
#include "error.h"
#include "steps.h"
#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { LANES_MS = 500 /* for work in the lanes after a failure */ };

/* Call under the lock. After a failure no operation in the queue is run: let all streams go on. */
static void queue_complete(struct ddpi_device *device, const struct ddpi_queued *queued,
                           ddp_status status)
{
    ddpi_comm_count(device->comm, &queued->task, status);
    memcpy(device->spent_us, device->progress.spent_us, sizeof device->spent_us);
    device->completed++;
    if (status != DDP_OK) {
        device->failed = true;
        device->completed = device->submitted;
    }
    ddpi_words_set(&device->words, DDPI_WORD_GATE, device->completed);
    pthread_cond_broadcast(&device->changed);
}

/* Fail when the first operation is run: until then the communicator may be the caller's. */
static ddp_status fail_without_context(struct ddpi_device *device, ddpi_cu_result result)
{
    struct ddp_error err;
    ddp_status status =
        ddpi_cuda_error(&device->cuda, &err, result, "use the context of the buffers");
    return ddpi_device_fail(device, status, &err);
}

/* Work in the lanes may still write to buffers that the caller gets back now. */
static void let_lanes_finish(const struct ddpi_device *device)
{
    uint64_t end = ddpi_deadline(ddpi_now_ms(&ddpi_clock_monotonic), LANES_MS);
    for (unsigned i = 0; i < DDPI_LANES; i++) {
        const struct ddpi_lane *lane = &device->lanes[i];
        while (!ddpi_words_reached(&device->words, lane->word, lane->launched) &&
               device->cuda.stream_query(lane->stream) == DDPI_CU_ERROR_NOT_READY &&
               ddpi_now_ms(&ddpi_clock_monotonic) < end)
            (void)poll(NULL, 0, 1);
    }
}

/* Allow this thread what a capture in another thread of the program forbids to all; and let its
 * pauses be short. */
static void prepare_thread(const struct ddpi_device *device)
{
    (void)ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

static void *queue_thread(void *arg)
{
    struct ddpi_device *device = arg;
    prepare_thread(device);
    ddpi_cu_result current = device->cuda.ctx_push_current(device->context);
    pthread_mutex_lock(&device->lock);
    for (;;) {
        while (device->completed == device->submitted && !device->ending)
            pthread_cond_wait(&device->changed, &device->lock);
        if (device->completed == device->submitted)
            break;
        struct ddpi_queued queued = device->queue[(device->completed + 1) % DDPI_QUEUE_MAX];
        pthread_mutex_unlock(&device->lock);
        ddp_status status = current == DDPI_CU_SUCCESS ? device->run(device, &queued)
                                                       : fail_without_context(device, current);
        if (status != DDP_OK)
            let_lanes_finish(device);
        pthread_mutex_lock(&device->lock);
        queue_complete(device, &queued, status);
    }
    pthread_mutex_unlock(&device->lock);
    if (current == DDPI_CU_SUCCESS)
        (void)device->cuda.ctx_pop_current(NULL);
    return NULL;
}

ddp_status ddpi_queue_start(struct ddpi_device *device, ddpi_queue_run *run, struct ddp_error *err)
{
    device->run = run;
    int failure = ddpi_thread_start(&device->thread, 0, queue_thread, device);
    if (failure != 0)
        return ddpi_error_sys(err, failure, "start a thread");
    device->running = true;
    return DDP_OK;
}

/* Call under the lock: wait until the queue has room for one more. */
static ddp_status await_room(struct ddpi_device *device, struct ddp_error *err)
{
    uint64_t end = ddpi_deadline(ddpi_now_ms(&ddpi_clock_monotonic), device->comm->timeout_ms);
    const struct timespec deadline = {.tv_sec = (time_t)(end / 1000),
                                      .tv_nsec = (long)(end % 1000) * 1000000};
    while (!device->failed && device->submitted - device->completed >= DDPI_QUEUE_MAX)
        if (pthread_cond_timedwait(&device->changed, &device->lock, &deadline) == ETIMEDOUT)
            return ddpi_error_set(err, DDP_E_TIMEOUT,
                                  "%u operations are enqueued and none of them "
                                  "has ended for %u ms",
                                  device->submitted - device->completed, device->comm->timeout_ms);
    return DDP_OK;
}

/* The operation is in the stream: let the thread run it, unless a failure came first. */
static void queue_publish(struct ddpi_device *device, const struct ddpi_queued *queued)
{
    pthread_mutex_lock(&device->lock);
    device->submitted = queued->ticket;
    if (device->failed) { /* ddp_comm_check() reports the failure; the stream goes on */
        device->completed = queued->ticket;
        ddpi_words_set(&device->words, DDPI_WORD_GATE, queued->ticket);
    } else {
        device->queue[queued->ticket % DDPI_QUEUE_MAX] = *queued;
    }
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
}

/* Only the caller's thread changes @submitted. */
ddp_status ddpi_queue_put(struct ddpi_device *device, struct ddpi_queued *queued,
                          ddpi_cu_stream stream, struct ddp_error *err)
{
    pthread_mutex_lock(&device->lock);
    ddp_status status = await_room(device, err);
    queued->ticket = device->submitted + 1;
    pthread_mutex_unlock(&device->lock);
    queued->enqueued_us = ddpi_now_us(&ddpi_clock_monotonic);
    if (status == DDP_OK)
        status = ddpi_words_stamp(&device->words, queued->ticket % DDPI_QUEUE_MAX, queued->ticket,
                                  stream, err);
    if (status == DDP_OK)
        status = ddpi_words_hold(&device->words, DDPI_WORD_GATE, queued->ticket, stream, err);
    if (status != DDP_OK)
        return status;
    ++*ddpi_comm_next_seq(device->comm, &queued->task.call);
    queue_publish(device, queued);
    return DDP_OK;
}

bool ddpi_queue_is_busy(struct ddpi_device *device)
{
    pthread_mutex_lock(&device->lock);
    bool busy = device->completed != device->submitted;
    pthread_mutex_unlock(&device->lock);
    return busy;
}

void ddpi_queue_drain(struct ddpi_device *device)
{
    pthread_mutex_lock(&device->lock);
    while (device->completed != device->submitted)
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
}

void ddpi_queue_read_stats(struct ddpi_device *device, struct ddp_comm_stats *stats)
{
    pthread_mutex_lock(&device->lock);
    ddpi_comm_read_counts(device->comm, stats);
    stats->stream_us = device->spent_us[DDPI_STAGE_STREAM];
    stats->exchange_us = device->spent_us[DDPI_STAGE_EXCHANGE];
    stats->work_us = device->spent_us[DDPI_STAGE_WORK];
    stats->completion_us = device->spent_us[DDPI_STAGE_COMPLETION];
    pthread_mutex_unlock(&device->lock);
}

void ddpi_queue_stop(struct ddpi_device *device)
{
    if (ddpi_queue_is_busy(device))
        ddp_comm_abort(device->comm);
    pthread_mutex_lock(&device->lock);
    device->ending = true;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    if (device->running)
        pthread_join(device->thread, NULL);
    device->running = false;
}
