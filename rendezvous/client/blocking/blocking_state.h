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

/* ---- how threads share one connection: one of them leads (leader.c) ---- */

/* All functions are called with the lock held. */

/* Wait until @waiter is ready or @until_ms has come; lead or follow meanwhile. */
void ddpi_store_await(ddp_store *store, struct waiter *waiter, uint64_t until_ms);
/* Lead for one turn, for @waiter (NULL: for the first connection): send, then wait for input at
 * most until @until_ms. */
void ddpi_store_lead(ddp_store *store, const struct waiter *waiter, uint64_t until_ms);

/* Before requests are submitted: read a connection that was idle, as it may have ended. */
void ddpi_store_read_if_idle(ddp_store *store, uint64_t now_ms);
/* After requests were submitted: if another thread leads, send them here, and poke the leader for
 * what only it can do. */
void ddpi_store_send_beside_leader(ddp_store *store, uint64_t now_ms);
/* After requests were canceled: tell the server, and let the leader look again. */
void ddpi_store_send_cancellations(ddp_store *store);

void ddpi_waiter_make_ready(struct waiter *waiter);

/* ---- the queue of events (blocking_watch.c) ---- */

/* The `event` hook of the client core. */
ddp_status ddpi_store_on_event(void *ctx, struct ddpi_client_watch *watch,
                               const struct ddpi_message *message, struct ddp_error *err);

#endif
