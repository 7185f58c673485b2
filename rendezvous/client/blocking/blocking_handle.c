/*
 * blocking_handle.c - opens, cancels and closes the blocking client's handle. Owns its memory, its
 * eventfd and the events that nobody has read.
 */
#include "blocking_call.h"
#include "blocking_state.h"
#include "client_store.h"
#include "clock.h"
#include "error.h"
#include "mem.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/* splitmix64: good enough to keep clients from dialling at the same time. */
static uint32_t next_jitter(void *ctx)
{
    ddp_store *store = ctx;
    uint64_t bits = store->jitter += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(bits >> 32);
}

static bool is_no_answer(ddp_status status)
{
    return status == DDP_E_UNREACHABLE || status == DDP_E_CLOSED;
}

/* The server may be starting, or being replaced, or have no room or no time for us now: try
 * again. */
static bool may_pass(ddp_status status)
{
    return is_no_answer(status) || status == DDP_E_LIMIT || status == DDP_E_TIMEOUT;
}

static bool goes_on(const struct ddpi_client *core)
{
    return core->why.status == DDP_OK || may_pass(core->why.status) ||
           (core->endpoints > 1 && !core->refused);
}

static ddp_status connect_first(ddp_store *store, struct ddp_error *err)
{
    struct ddpi_client *core = &store->core;
    uint32_t timeout_ms = store->target.connect_timeout_ms;
    uint64_t now_ms = ddpi_monotonic_ms(), deadline_ms = ddpi_deadline(now_ms, timeout_ms);
    struct ddp_error why;
    ddpi_client_start(core, now_ms);
    while (core->sm.state != CLIENT_OPEN && now_ms < deadline_ms && goes_on(core)) {
        ddpi_store_lead(store, NULL, deadline_ms);
        now_ms = ddpi_monotonic_ms();
    }
    if (core->sm.state == CLIENT_OPEN) {
        store->limits = core->welcome;
        return DDP_OK;
    }
    ddpi_client_why(core, &why);
    if (is_no_answer(why.status) && ddpi_errno_lacks_descriptors(core->why.sys_errno))
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "no descriptor is left to connect to the store at %s (tried for %u "
                              "ms): %s",
                              store->target.endpoint, timeout_ms, why.msg);
    if (is_no_answer(why.status))
        return ddpi_error_set(err, DDP_E_UNREACHABLE,
                              "no store answers at %s (tried for %u ms): %s",
                              store->target.endpoint, timeout_ms, why.msg);
    return ddpi_error_set(err, why.status, "store at %s: %s", store->target.endpoint, why.msg);
}

static void init_handle(ddp_store *store)
{
    const struct ddpi_client_hooks hooks = {.ctx = store,
                                            .done = ddpi_store_call_done,
                                            .event = ddpi_store_on_event,
                                            .random = next_jitter};
    ddpi_client_init(&store->core, &hooks);
    ddpi_link_init(&store->link);
    ddpi_list_init(&store->waiters);
    ddpi_list_init(&store->events);
    pthread_mutex_init(&store->lock, NULL);
    if (getrandom(&store->jitter, sizeof store->jitter, GRND_NONBLOCK) < 0)
        store->jitter = ddpi_monotonic_us();
}

static ddp_status open_wake_fd(ddp_store *store, struct ddp_error *err)
{
    char text[DDP_ERROR_TEXT / 2];
    store->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->wake_fd >= 0)
        return DDP_OK;
    ddpi_errno_describe(errno, text, sizeof text);
    return ddpi_error_set(err, DDP_E_SYSTEM, "cannot make an eventfd: %s", text);
}

ddp_status ddp_store_connect(const struct ddp_store_options *options, ddp_store **ret_store,
                             struct ddp_error *err)
{
    ddp_store *store = ddpi_calloc(1, sizeof(*store));
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof(*store));
    init_handle(store);
    ddp_status status = open_wake_fd(store, err);
    if (status == DDP_OK)
        status = ddpi_target_init(&store->target, options, err);
    if (status == DDP_OK) {
        store->core.endpoints = store->target.addresses.count;
        pthread_mutex_lock(&store->lock);
        status = connect_first(store, err);
        store->core.no_reconnect = store->target.flags & DDP_STORE_NO_RECONNECT;
        pthread_mutex_unlock(&store->lock);
    }
    if (status == DDP_OK)
        *ret_store = store;
    else
        ddp_store_close(store);
    return status;
}

void ddp_store_close(ddp_store *store)
{
    if (store == NULL)
        return;
    while (!ddpi_list_empty(&store->events)) {
        struct ddpi_event *event =
            ddpi_container_of(store->events.next, struct ddpi_event, of_store);
        ddpi_list_remove(&event->of_store);
        ddpi_free(event);
    }
    ddpi_client_finish(&store->core);
    ddpi_link_close(&store->link);
    if (store->wake_fd >= 0)
        close(store->wake_fd);
    pthread_mutex_destroy(&store->lock);
    ddpi_target_finish(&store->target);
    ddpi_free(store);
}

void ddp_store_free(void *memory)
{
    ddpi_free(memory);
}

bool ddpi_store_met(ddp_store *store, uint64_t *ret_number)
{
    pthread_mutex_lock(&store->lock);
    bool met = ddpi_client_met(&store->core, ret_number);
    pthread_mutex_unlock(&store->lock);
    return met;
}

static void cancel_requests(ddp_store *store, struct ddpi_list *requests)
{
    while (!ddpi_list_empty(requests))
        ddpi_client_cancel(&store->core, ddpi_request_of(requests->next));
}

void ddp_store_cancel(ddp_store *store)
{
    pthread_mutex_lock(&store->lock);
    cancel_requests(store, &store->core.requests.queued);
    cancel_requests(store, &store->core.requests.pending);
    ddpi_list_for_each (node, &store->waiters) {
        struct waiter *waiter = ddpi_container_of(node, struct waiter, of_store);
        waiter->canceled = true;
        ddpi_waiter_make_ready(waiter);
    }
    ddpi_store_send_cancellations(store);
    pthread_mutex_unlock(&store->lock);
}
