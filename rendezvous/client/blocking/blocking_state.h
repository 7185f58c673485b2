/*
 * blocking_state.h - the structures of the blocking client, for its own files: leader.c (the thread
 * that reads for all), blocking_call.c (one request of one thread), on them the public calls, and
 * blocking_handle.c on top.
 */
#ifndef DDPI_BLOCKING_STATE_H
#define DDPI_BLOCKING_STATE_H

#include "client_core.h"
#include "client_target.h"
#include "dial.h"

#include <ddprun/store.h>
#include <pthread.h>

struct ddp_store {
    struct ddpi_target target;  /* does not change, ... */
    struct ddpi_welcome limits; /* ... nor does this: the first server's */
    pthread_mutex_t lock;       /* for all that follows */
    struct ddpi_client core;
    struct ddpi_link link; /* used by the leader; other threads may send */
    bool led;              /* a thread leads: it polls, or resolves a name, without the lock */
    bool resolving;        /* it resolves a name, and does not watch the time */
    bool poked;            /* it has been told to look again, ... */
    int wake_fd;           /* ... by this eventfd */
    uint64_t led_until_ms; /* when it looks again anyway */
    uint64_t io_ms;        /* when bytes were last sent or received */
    uint64_t jitter;
    struct ddpi_list waiters; /* waiter::of_store */
    struct ddpi_list events;  /* ddpi_event::of_store */
    size_t events_size;
};

/* A thread that waits. */
struct waiter {
    struct ddpi_list of_store;
    pthread_cond_t cond;
    bool ready;      /* what it waits for has come */
    bool for_events; /* it waits for an event */
    bool canceled;
};

#endif
