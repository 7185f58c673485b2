/*
 * stream_gate.c - holds the caller's stream while an operation waits for its turn and is carried
 * out. Owns nothing; the words are the device's.
 *
 * On the stream an operation is two words: the stream stamps "arrived", and is held until "gate"
 * reaches the operation's ticket. So whatever happens to other ranks, the stream goes on when the
 * communicator's thread sets one word: after the operation, or after its failure.
 */
#include "stream_gate.h"

#include "clock.h"
#include "error.h"
#include "runs.h"
#include "steps.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static struct ddpi_ticket *ticket_of(struct ddpi_run *run)
{
    return (struct ddpi_ticket *)(void *)run->state;
}

/* Wait until fewer than DDPI_GATED_MAX operations are enqueued. */
static ddp_status await_room(struct ddpi_device *device, struct ddp_error *err)
{
    uint64_t end = ddpi_deadline(ddpi_now_ms(&ddpi_clock_monotonic), device->comm->timeout_ms);
    const struct timespec deadline = {.tv_sec = (time_t)(end / 1000),
                                      .tv_nsec = (long)(end % 1000) * 1000000};
    ddp_status status = DDP_OK;
    pthread_mutex_lock(&device->lock);
    while (device->submitted - device->completed >= DDPI_GATED_MAX && status == DDP_OK)
        if (pthread_cond_timedwait(&device->changed, &device->lock, &deadline) == ETIMEDOUT)
            status =
                ddpi_error_set(err, DDP_E_TIMEOUT,
                               "%u operations are enqueued and none of them "
                               "has ended for %u ms",
                               device->submitted - device->completed, device->comm->timeout_ms);
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* The driver blocks while the stream is full, until a gate opens: the lock of those who enqueue is
 * not taken for that. */
ddp_status ddpi_gate_put(struct ddpi_device *device, struct ddpi_run *run, ddpi_cu_stream stream,
                         struct ddp_error *err)
{
    struct ddpi_ticket *ticket = ticket_of(run);
    ddp_status status = await_room(device, err);
    ticket->number = device->submitted + 1;
    ticket->enqueued_us = ddpi_now_us(&ddpi_clock_monotonic);
    if (status == DDP_OK)
        status = ddpi_words_stamp(&device->words, ticket->number % DDPI_GATED_MAX, ticket->number,
                                  stream, err);
    if (status == DDP_OK)
        status = ddpi_words_hold(&device->words, DDPI_WORD_GATE, ticket->number, stream, err);
    if (status == DDP_OK) {
        pthread_mutex_lock(&device->lock);
        device->submitted = ticket->number;
        pthread_mutex_unlock(&device->lock);
        ddpi_runs_put(device->comm, run);
    }
    return status;
}

ddp_status ddpi_gate_await(struct ddpi_device *device, const struct ddpi_run *run,
                           const struct ddpi_wait *wait)
{
    const struct ddpi_ticket *ticket = (const struct ddpi_ticket *)(const void *)run->state;
    device->progress.at_us = ticket->enqueued_us;
    return ddpi_device_await(device, wait, ticket->number % DDPI_GATED_MAX, ticket->number);
}

void ddpi_gate_open(struct ddpi_device *device, const struct ddpi_run *run)
{
    const struct ddpi_ticket *ticket = (const struct ddpi_ticket *)(const void *)run->state;
    pthread_mutex_lock(&device->lock);
    memcpy(device->spent_us, device->progress.spent_us, sizeof device->spent_us);
    device->completed = ticket->number;
    ddpi_words_set(&device->words, DDPI_WORD_GATE, ticket->number);
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
}
