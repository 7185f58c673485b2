/*
 * gate_watch.h - a thread that opens the gates of a communicator whose own thread does not come
 * back from the driver.
 *
 * Where ranks have a GPU each, the communicator's thread calls the driver while it holds the
 * caller's stream. If the program waits for that stream in the driver meanwhile, as to free memory
 * or to load a kernel, the driver lets no other thread in: the two wait for each other. When the
 * timeout of the communicator has passed, this thread, which never calls the driver, lets the
 * stream go on. Both threads come back, and the communicator fails.
 */
#ifndef DDPI_GATE_WATCH_H
#define DDPI_GATE_WATCH_H

#include <ddprun/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ddpi_device;

/* Zeroed, it is not started. */
struct ddpi_gate_watch {
    pthread_t thread;
    pthread_cond_t wake;
    bool started, over; /* the latter under the lock of the gates */
    atomic_bool busy;   /* the communicator's thread may be in the driver */
    atomic_uint beats;  /* grows while that thread is seen outside of it */
};

/* Under the lock of those who enqueue, before the first operation that calls the driver: start the
 * thread, unless it was started. */
ddp_status ddpi_gate_watch_start(struct ddpi_device *device, struct ddp_error *err);

/* End the thread, if it was started. */
void ddpi_gate_watch_stop(struct ddpi_device *device);

/* The communicator's thread is not in the driver. */
static inline void ddpi_gate_watch_beat(struct ddpi_gate_watch *watch)
{
    atomic_fetch_add_explicit(&watch->beats, 1, memory_order_relaxed);
}

/* The communicator's thread may call the driver from now on, or does not. Returns what was
 * before. */
static inline bool ddpi_gate_watch_busy(struct ddpi_gate_watch *watch, bool busy)
{
    ddpi_gate_watch_beat(watch);
    return atomic_exchange(&watch->busy, busy);
}

#endif
