/*
 * blocking_impl.h - what the files of the blocking client share: handle.c (the handle, and what
 * its threads wait for), keys.c (calls on keys), many.c (one call on many keys),
 * transaction.c (transactions), session.c (sessions) and watch.c (events). Nobody else
 * includes it.
 */
#ifndef DDPI_BLOCKING_IMPL_H
#define DDPI_BLOCKING_IMPL_H

#include "client_core.h"
#include "client_target.h"
#include "dial.h"

#include <ddprun/store.h>
#include <pthread.h>

struct ddp_store {
    struct ddpi_target target;  /* does not change, nor does ... */
    struct ddpi_welcome limits; /* ... this: the first server's */
    pthread_mutex_t lock;       /* for all that follows */
    struct ddpi_client core;
    struct ddpi_link link; /* touched by who leads; others may send */
    bool led;              /* a thread is in poll(2), or resolves a name, unlocked */
    bool resolving;        /* it is the latter, and nobody looks after the time meanwhile */
    bool poked;            /* and has been told to look again */
    int wake_fd;           /* by which it is told */
    uint64_t led_until_ms; /* when it looks again anyway */
    uint64_t io_ms;        /* when bytes last came or went */
    uint64_t jitter;
    struct ddpi_list waiters; /* waiter::of_store */
    struct ddpi_list events;  /* ddpi_event::of_store */
    size_t events_size;
};

/* A thread that waits. */
struct waiter {
    struct ddpi_list of_store;
    pthread_cond_t cond;
    bool ready;      /* what it waits for is there */
    bool for_events; /* that is: an event */
    bool canceled;
};

/* One request of one thread. */
struct call {
    struct ddpi_client_request request;
    struct waiter waiter;
    ddp_status status;
    struct ddp_error *err; /* may be NULL */
    uint64_t version;
    int64_t number;
    /* Copy what else is wanted of a good reply; NULL: nothing. */
    ddp_status (*take)(const ddp_store *store, struct call *call, const struct ddpi_message *reply,
                       struct ddp_error *err);
    void *ret;         /* where @take puts it, */
    size_t ret_len;    /* and how much */
    struct call *next; /* that is asked together with this one; NULL: none */
};

#define CALL_MESSAGE(...) .request = {.message = {__VA_ARGS__}}

/* Ask for @call->request.message and wait for the answer. */
ddp_status ddpi_store_run(ddp_store *store, struct call *call, uint32_t timeout_ms,
                          struct ddp_error *err);
/* The same for @first and all that follow it, which leave before the first answer is waited for.
 * The caller has set @err of each, and finds its status there. */
void ddpi_store_run_all(ddp_store *store, struct call *first, uint32_t timeout_ms);
/* The sentence of @call, which has failed for the reason @why. Returns its status. */
ddp_status ddpi_store_tell(const ddp_store *store, const struct call *call,
                           const struct ddp_error *why, struct ddp_error *err);
/* ddpi_store_run() for an operation on one key, or name. */
ddp_status ddpi_store_run_key(ddp_store *store, const char *key, struct call *call,
                              uint32_t timeout_ms, struct ddp_error *err);

/* keys.c, for struct call: a copy of the value. */
ddp_status ddpi_store_take_value(const ddp_store *store, struct call *call,
                                 const struct ddpi_message *reply, struct ddp_error *err);

/* Wait, locked, until @waiter is ready or the time has come. */
void ddpi_store_await(ddp_store *store, struct waiter *waiter, uint64_t until_ms);

/* watch.c: the core's hook. */
ddp_status ddpi_store_on_event(void *ctx, struct ddpi_client_watch *watch,
                               const struct ddpi_message *message, struct ddp_error *err);

#endif
