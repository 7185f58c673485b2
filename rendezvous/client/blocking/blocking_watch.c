/*
 * blocking_watch.c - the blocking client's watches and events. Any thread of the handle that
 * receives puts events into a queue, for ddp_store_next_event(). Owns the queue.
 *
 * The queue is bounded. If it is full, the watch gets a LOST event instead, and its further events
 * are dropped until the caller reads that one; after that no event is missing. The event that ends
 * a watch is always queued, as it comes only once.
 */
#include "blocking_state.h"

#include "blocking_call.h"
#include "clock.h"
#include "error.h"

enum { EVENTS_MAX = 64 * 1024 * 1024 };

ddp_status ddp_store_watch(ddp_store *store, const char *name, uint32_t flags,
                           uint64_t from_version, uint32_t timeout_ms, uint64_t *ret_watch,
                           uint64_t *ret_version, struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_WATCH, .version = from_version, .count = flags)};
    if (flags & ~(uint32_t)DDP_STORE_WATCH_PREFIX)
        return ddpi_error_set(err, DDP_E_INVALID, "unknown flags of a watch: 0x%x", flags);
    ddp_status status = ddpi_store_run_key(store, name, &call, timeout_ms, err);
    if (status == DDP_OK && ret_watch != NULL)
        *ret_watch = call.request.message.id;
    if ((status == DDP_OK || status == DDP_E_GONE) && ret_version != NULL)
        *ret_version = call.version;
    return status;
}

ddp_status ddp_store_unwatch(ddp_store *store, uint64_t watch, uint32_t timeout_ms,
                             struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_UNWATCH, .number = (int64_t)watch)};
    return ddpi_store_run(store, &call, timeout_ms, err);
}

static void wake_one_reader(ddp_store *store)
{
    ddpi_list_for_each (node, &store->waiters) {
        struct waiter *waiter = ddpi_container_of(node, struct waiter, of_store);
        if (!waiter->for_events || waiter->ready)
            continue;
        ddpi_waiter_make_ready(waiter);
        return;
    }
}

ddp_status ddpi_store_on_event(void *ctx, struct ddpi_client_watch *watch,
                               const struct ddpi_message *message, struct ddp_error *err)
{
    ddp_store *store = ctx;
    struct ddpi_event *event;
    const struct ddpi_message missed = {.version = message->version};
    size_t size = sizeof *event + message->key.len + message->value.len;
    bool ends = message->number == DDPI_CHANGE_NONE && message->value.len > 0;
    if (watch->missed && !ends)
        return DDP_OK;
    bool full = !ends && store->events_size + size > EVENTS_MAX;
    ddp_status status =
        ddpi_target_event(&store->target, watch->id, full ? &missed : message, &event, err);
    if (status != DDP_OK)
        return status;
    if (full)
        event->size = 0;
    watch->missed = full;
    ddpi_list_append(&store->events, &event->of_store);
    store->events_size += event->size;
    wake_one_reader(store);
    return DDP_OK;
}

static struct ddp_store_event *pop_event(ddp_store *store)
{
    struct ddpi_event *event = ddpi_container_of(store->events.next, struct ddpi_event, of_store);
    ddpi_list_remove(&event->of_store);
    store->events_size -= event->size;
    struct ddpi_client_watch *watch =
        ddpi_client_watch_find(&store->core.watches, event->event.watch);
    if (event->event.kind == DDP_STORE_EVENT_LOST && watch != NULL)
        watch->missed = false;
    return &event->event;
}

/* With the lock held. */
static ddp_status await_event(ddp_store *store, uint64_t until_ms, struct ddp_error *err)
{
    struct waiter waiter = {.for_events = true};
    ddp_status status = DDP_OK;
    pthread_cond_init(&waiter.cond, NULL);
    while (status == DDP_OK && ddpi_list_empty(&store->events)) {
        waiter.ready = false;
        if (store->core.sm.state != CLIENT_CLOSED)
            ddpi_store_await(store, &waiter, until_ms);
        if (!ddpi_list_empty(&store->events))
            break;
        if (store->core.sm.state == CLIENT_CLOSED)
            status = ddpi_error_set(err, DDP_E_CLOSED, "%s", store->core.why.msg);
        else if (waiter.canceled)
            status = ddpi_error_set(err, DDP_E_CANCELED, "canceled");
        else if (ddpi_monotonic_ms() >= until_ms)
            status = ddpi_error_set(err, DDP_E_TIMEOUT, "no watched key has changed in time");
    }
    pthread_cond_destroy(&waiter.cond);
    return status;
}

ddp_status ddp_store_next_event(ddp_store *store, uint32_t timeout_ms,
                                struct ddp_store_event **ret_event, struct ddp_error *err)
{
    struct ddp_error why;
    struct ddp_store_event *event = NULL;
    pthread_mutex_lock(&store->lock);
    ddp_status status = await_event(store, ddpi_deadline(ddpi_monotonic_ms(), timeout_ms), &why);
    if (status == DDP_OK)
        event = pop_event(store);
    pthread_mutex_unlock(&store->lock);
    if (status != DDP_OK)
        return ddpi_error_set(err, status, "wait for an event of the store %s: %s",
                              store->target.endpoint, why.msg);
    *ret_event = event;
    return DDP_OK;
}
