/*
 * steps.c - the steps that the ways of an operation on a GPU have in common. Owns nothing. Waits
 * only where ddpi_wait() does, which knows deadlines, deaths and aborts.
 */
#include "steps.h"

#include "clock.h"
#include "ring_engine.h"

enum {
    NAP_MIN_US = 20,
    NAP_MAX_US = 1000,
    STILL_MS = 200, /* at the deadline a GPU hangs if nothing has moved on it for so long */
};

unsigned ddpi_device_capture_mode(const struct ddpi_device *device, unsigned mode)
{
    (void)device->cuda.thread_exchange_stream_capture_mode(&mode);
    return mode;
}

struct ddpi_wait ddpi_device_wait(const struct ddpi_task *task)
{
    uint64_t now = ddpi_monotonic_ms();
    return (struct ddpi_wait){.call = &task->call,
                              .started_ms = now,
                              .deadline_ms = ddpi_deadline(now, task->timeout_ms)};
}

ddp_status ddpi_device_fail(struct ddpi_device *device, ddp_status status,
                            const struct ddp_error *err)
{
    return ddpi_comm_fail(device->comm, NULL, status, "rank %u: %s", device->comm->rank, err->msg);
}

ddp_status ddpi_device_gather(struct ddpi_device *device, const struct ddpi_task *task,
                              void *records, size_t size)
{
    struct ddpi_task round = {.call = task->call,
                              .ring = {.kind = DDPI_RING_ALL_GATHER,
                                       .rank = device->comm->rank,
                                       .nranks = device->comm->world_size},
                              .send = (uint8_t *)records + device->comm->rank * size,
                              .recv = records,
                              .count = device->comm->world_size * size,
                              .factor = 1, /* records are no elements, whatever the call is */
                              .element_size = 1,
                              .timeout_ms = task->timeout_ms};
    return ddpi_host_ring(device->comm, &round);
}

void ddpi_device_stage(struct ddpi_device *device, enum ddpi_stage stage)
{
    struct ddpi_progress *progress = &device->progress;
    uint64_t now_us = ddpi_monotonic_us();
    progress->spent_us[stage] += now_us - progress->at_us;
    progress->at_us = now_us;
}

ddp_status ddpi_device_check_refusal(struct ddpi_device *device)
{
    ddp_status refused = (ddp_status)atomic_load_explicit(&device->refused, memory_order_acquire);
    return refused == DDP_OK ? DDP_OK : ddpi_device_fail(device, refused, &device->refusal);
}

/* How long this thread has waited for the GPU, which cannot wake it: it looks without pause at
 * first, then after ever longer ones. */
struct ddpi_patience {
    uint64_t since_ms; /* of the first nap */
    uint32_t looks;
    uint32_t nap_us;
    bool for_stream; /* to reach the operation; otherwise to have copied its result */
};

/* ddpi_wait() watches peers; this watches the GPU of this rank. */
static ddp_status check_time(struct ddpi_device *device, const struct ddpi_patience *patience,
                             const struct ddpi_wait *wait)
{
    uint64_t now = ddpi_monotonic_ms();
    if (now < wait->deadline_ms || now - patience->since_ms < STILL_MS)
        return DDP_OK;
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(
        device->comm, NULL, DDP_E_TIMEOUT, "%s: rank %u has waited %.1f s for its own GPU; %s",
        call, device->comm->rank, (double)(now - wait->started_ms) / 1000,
        patience->for_stream
            ? "the stream has not reached the operation: an earlier kernel in it may hang"
            : "the copy of its result does not end");
}

/* Pause before the next look, and read messages of peers meanwhile. */
static ddp_status pause_once(struct ddpi_device *device, struct ddpi_patience *patience,
                             const struct ddpi_wait *wait)
{
    if (patience->looks++ < device->comm->spin_limit) {
        ddpi_relax();
        return DDP_OK;
    }
    if (patience->nap_us == 0) {
        patience->nap_us = NAP_MIN_US;
        patience->since_ms = ddpi_monotonic_ms();
    }
    struct ddpi_wait nap = *wait;
    nap.nap_us = patience->nap_us;
    ddp_status status = ddpi_wait(device->comm, &nap, NULL, 0);
    if (status == DDP_OK)
        status = ddpi_device_check_refusal(device);
    if (status == DDP_OK)
        status = check_time(device, patience, wait);
    patience->nap_us = patience->nap_us < NAP_MAX_US / 2 ? patience->nap_us * 2 : NAP_MAX_US;
    return status;
}

ddp_status ddpi_device_await(struct ddpi_device *device, const struct ddpi_wait *wait,
                             uint32_t word, uint32_t value)
{
    struct ddpi_patience patience = {.for_stream = word < DDPI_WORD_GATE};
    while (!ddpi_words_reached(&device->words, word, value)) {
        ddp_status status = pause_once(device, &patience, wait);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}
