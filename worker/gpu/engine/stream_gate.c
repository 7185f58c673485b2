/*
 * stream_gate.c - holds the caller's stream while an operation waits for its turn and is carried
 * out. Owns nothing; the words are the device's.
 *
 * On the stream an operation is two words: the stream stamps "arrived", and is held until "gate"
 * reaches the operation's ticket. So whatever happens to other ranks, the stream goes on when the
 * communicator's thread sets one word: after the operation, or after its failure. An operation in
 * slices has a ticket for each of them.
 *
 * The run is in the queue before the driver is called: a driver that runs whatever is enqueued at
 * once, as with CUDA_LAUNCH_BLOCKING=1, does not return before the gate has opened.
 */
#include "stream_gate.h"

#include "clock.h"
#include "error.h"
#include "runs.h"
#include "steps.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Wait until fewer than DDPI_GATED_MAX tickets are out. */
static ddp_status await_room(struct ddpi_device *device, struct ddp_error *err)
{
    uint64_t end = ddpi_deadline(ddpi_monotonic_ms(), device->comm->timeout_ms);
    const struct timespec deadline = {.tv_sec = (time_t)(end / 1000),
                                      .tv_nsec = (long)(end % 1000) * 1000000};
    ddp_status status = DDP_OK;
    pthread_mutex_lock(&device->lock);
    while (device->submitted - device->completed >= DDPI_GATED_MAX && status == DDP_OK)
        if (pthread_cond_timedwait(&device->changed, &device->lock, &deadline) == ETIMEDOUT)
            status =
                ddpi_error_set(err, DDP_E_TIMEOUT,
                               "%u operations, or slices of them, are enqueued, and none of them "
                               "has ended for %u ms",
                               device->submitted - device->completed, device->comm->timeout_ms);
    pthread_mutex_unlock(&device->lock);
    return status;
}

void ddpi_gate_refuse(struct ddpi_device *device, ddp_status status, const struct ddp_error *cause)
{
    pthread_mutex_lock(&device->lock);
    if (atomic_load(&device->refused) == DDP_OK && device->comm->failed == DDP_OK) {
        device->refusal = *cause; /* the first one stays */
        atomic_store_explicit(&device->refused, (int)status, memory_order_release);
    }
    pthread_mutex_unlock(&device->lock);
}

ddp_status ddpi_gate_put(struct ddpi_device *device, struct ddpi_run *run, uint32_t tickets,
                         ddpi_enqueue *enqueue, ddpi_cu_stream stream, struct ddp_error *err)
{
    struct ddpi_gated *gated = ddpi_gated_of(run);
    struct ddp_error cause;
    ddp_status status = (ddp_status)atomic_load(&device->refused);
    if (status != DDP_OK) /* half an operation may be in a stream, so none can follow */
        return ddpi_error_set(err, status, "%s", device->refusal.msg);
    status = await_room(device, err);
    if (status != DDP_OK)
        return status;
    *gated = (struct ddpi_gated){.first = device->submitted + 1,
                                 .last = device->submitted + tickets,
                                 .first_turn = device->staging.turn,
                                 .enqueued_us = ddpi_monotonic_us()};
    pthread_mutex_lock(&device->lock);
    device->submitted = gated->last;
    device->enqueuing = true;
    pthread_mutex_unlock(&device->lock);
    ddpi_runs_put(device->comm, run);
    status = enqueue(device, run, stream, &cause);
    if (status != DDP_OK)
        ddpi_gate_refuse(device, status, &cause);
    pthread_mutex_lock(&device->lock);
    device->enqueuing = false; /* the run may be gone from now on */
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    return DDP_OK;
}

/* The word of a ticket is that of an earlier one, too. The communicator's thread opens the gates,
 * and has a deadline, so this needs none. */
static void await_word(struct ddpi_device *device, uint32_t ticket)
{
    pthread_mutex_lock(&device->lock);
    while ((int32_t)(ticket - device->completed) > DDPI_GATED_MAX)
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
}

ddp_status ddpi_gate_stamp(struct ddpi_device *device, uint32_t ticket, ddpi_cu_stream stream,
                           struct ddp_error *err)
{
    await_word(device, ticket);
    return ddpi_words_stamp(&device->words, ticket % DDPI_GATED_MAX, ticket, stream, err);
}

ddp_status ddpi_gate_hold(struct ddpi_device *device, uint32_t ticket, ddpi_cu_stream stream,
                          struct ddp_error *err)
{
    return ddpi_words_hold(&device->words, DDPI_WORD_GATE, ticket, stream, err);
}

ddp_status ddpi_gate_pass(struct ddpi_device *device, const struct ddpi_run *run,
                          ddpi_cu_stream stream, struct ddp_error *err)
{
    const struct ddpi_gated *gated = (const struct ddpi_gated *)(const void *)run->state;
    ddp_status status = ddpi_gate_stamp(device, gated->last, stream, err);
    return status == DDP_OK ? ddpi_gate_hold(device, gated->last, stream, err) : status;
}

ddp_status ddpi_gate_await(struct ddpi_device *device, uint32_t ticket,
                           const struct ddpi_wait *wait)
{
    return ddpi_device_await(device, wait, ticket % DDPI_GATED_MAX, ticket);
}

/* Gates that are open stay so. */
void ddpi_gate_open(struct ddpi_device *device, uint32_t ticket)
{
    pthread_mutex_lock(&device->lock);
    if ((int32_t)(ticket - device->completed) > 0) {
        device->completed = ticket;
        ddpi_words_set(&device->words, DDPI_WORD_GATE, ticket);
        pthread_cond_broadcast(&device->changed);
    }
    pthread_mutex_unlock(&device->lock);
}

void ddpi_gate_publish_stages(struct ddpi_device *device)
{
    pthread_mutex_lock(&device->lock);
    memcpy(device->spent_us, device->progress.spent_us, sizeof device->spent_us);
    pthread_mutex_unlock(&device->lock);
}

/* The gates open first: the thread that enqueues may be in the driver until the stream has passed
 * one. */
void ddpi_gate_end(struct ddpi_device *device, struct ddpi_run *run)
{
    const struct ddpi_gated *gated = ddpi_gated_of(run);
    ddpi_gate_publish_stages(device);
    ddpi_gate_open(device, gated->last);
    pthread_mutex_lock(&device->lock);
    while (device->enqueuing && device->submitted == gated->last)
        pthread_cond_wait(&device->changed, &device->lock);
    pthread_mutex_unlock(&device->lock);
}
