/*
 * gate_watch.c - see gate_watch.h. Owns the thread.
 */
#include "gate_watch.h"

#include "clock.h"
#include "error.h"
#include "stream_gate.h"
#include "thread.h"

#include <time.h>

enum { LOOKS = 8, LEAST_MS = 10, MOST_MS = 10000 }; /* in a timeout; between two */

static uint64_t pause_ms(const struct ddpi_device *device)
{
    uint64_t ms = device->comm->timeout_ms / LOOKS;
    return ms < LEAST_MS ? LEAST_MS : ms > MOST_MS ? MOST_MS : ms;
}

/* Under the lock of the gates, until @until_ms, or the thread is to end. */
static void sleep_until(struct ddpi_device *device, uint64_t until_ms)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                                   .tv_nsec = (long)(until_ms % 1000) * 1000000};
    while (!device->watch.over && ddpi_monotonic_ms() < until_ms)
        (void)pthread_cond_timedwait(&device->watch.wake, &device->lock, &until);
}

/* Not under that lock. */
static void let_all_go(struct ddpi_device *device)
{
    struct ddp_error cause;
    ddp_status status = ddpi_error_set(
        &cause, DDP_E_TIMEOUT,
        "the driver of its GPU has not answered for %u ms: the program may wait, in a call that "
        "frees memory or loads a kernel, for the stream that an operation of this communicator "
        "holds; synchronize the stream first, and set CUDA_MODULE_LOADING=EAGER, which loads all "
        "kernels at the start",
        device->comm->timeout_ms);
    ddpi_gate_refuse(device, status, &cause);
    ddpi_gate_open_all(device);
}

static void *watch_gates(void *ctx)
{
    struct ddpi_device *device = ctx;
    struct ddpi_gate_watch *watch = &device->watch;
    uint64_t looked_ms = ddpi_monotonic_ms(), moved_ms = looked_ms;
    unsigned seen = 0;
    pthread_mutex_lock(&device->lock);
    while (!watch->over) {
        uint64_t pause = pause_ms(device);
        sleep_until(device, looked_ms + pause);
        uint64_t now_ms = ddpi_monotonic_ms();
        unsigned beats = atomic_load(&watch->beats);
        bool stopped = now_ms - looked_ms > 2 * pause; /* this process was, perhaps */
        looked_ms = now_ms;
        if (beats != seen || !atomic_load(&watch->busy) || stopped)
            moved_ms = now_ms;
        seen = beats;
        if (now_ms - moved_ms < device->comm->timeout_ms)
            continue;
        pthread_mutex_unlock(&device->lock);
        let_all_go(device);
        pthread_mutex_lock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

ddp_status ddpi_gate_watch_start(struct ddpi_device *device, struct ddp_error *err)
{
    struct ddpi_gate_watch *watch = &device->watch;
    pthread_condattr_t monotonic;
    if (watch->started)
        return DDP_OK;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failure = ddpi_thread_start(&watch->thread, 0, watch_gates, device);
    watch->started = failure == 0;
    if (watch->started)
        return DDP_OK;
    pthread_cond_destroy(&watch->wake);
    return ddpi_error_sys(err, failure, "cannot start a thread");
}

void ddpi_gate_watch_stop(struct ddpi_device *device)
{
    struct ddpi_gate_watch *watch = &device->watch;
    if (!watch->started)
        return;
    pthread_mutex_lock(&device->lock);
    watch->over = true;
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&device->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->wake);
}
