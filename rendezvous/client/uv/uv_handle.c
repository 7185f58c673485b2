/*
 * uv_handle.c - the asynchronous client's handle: the client core (client_core.c) on the caller's
 * libuv loop. Owns the timer and the idle handle; never runs the loop.
 *
 * Requests that are submitted in one turn of the loop are sent in the next. Each callback of libuv
 * ends in settle_handle(), which brings connection, timer and caller up to date with the core.
 *
 * When the caller closes the handle, all requests are answered, then the socket is closed, then
 * libuv's handles, then the memory is freed.
 */
#include "uv_handle.h"

#include "client_store.h"
#include "clock.h"
#include "error.h"
#include "keep_alive.h"
#include "mem.h"
#include "uv_state.h"

#include <stdio.h>
#include <sys/random.h>

void ddpi_uv_later(ddp_store_uv *store, uint32_t delay_ms, void (*due)(void *data), void *data)
{
    store->later_ms = ddpi_monotonic_ms() + delay_ms;
    store->later = due;
    store->later_data = data;
    ddpi_uv_soon(store);
}

static void call_later(ddp_store_uv *store, uint64_t now_ms)
{
    void (*due)(void *data) = store->later;
    if (due == NULL || store->closing || now_ms < store->later_ms)
        return;
    store->later = NULL;
    due(store->later_data);
}

/* ---- ending ---- */

static void free_if_closed(ddp_store_uv *store)
{
    if (store->handles > 0 || store->link.state != UV_LINK_NONE)
        return;
    void (*closed)(void *data) = store->closed_cb;
    void *data = store->closed_data;
    ddpi_client_finish(&store->core);
    ddpi_buf_finish(&store->writing);
    ddpi_target_finish(&store->target);
    uv_freeaddrinfo(store->infos);
    ddpi_free(store);
    if (closed != NULL)
        closed(data);
}

static void on_uv_handle_closed(uv_handle_t *handle)
{
    ddp_store_uv *store = handle->data;
    store->handles--;
    free_if_closed(store);
}

static void finish_handle(ddp_store_uv *store)
{
    const struct ddp_error err = {.status = DDP_E_CANCELED, .msg = "the handle is closed"};
    store->finished = true;
    ddpi_client_close(&store->core, &err);
    ddpi_uv_unkeep_all(store);
    ddpi_uv_leave_lookups(store);
    uv_close((uv_handle_t *)&store->timer, on_uv_handle_closed);
    uv_close((uv_handle_t *)&store->soon, on_uv_handle_closed);
}

const char *ddpi_store_uv_host(const ddp_store_uv *store)
{
    return store->target.addresses.at[store->core.endpoint].host;
}

bool ddpi_store_uv_met(const ddp_store_uv *store, uint64_t *ret_number)
{
    return ddpi_client_met(&store->core, ret_number);
}

ddp_status ddpi_store_uv_refusal(const ddp_store_uv *store)
{
    return store->core.refused ? store->core.why.status : DDP_OK;
}

void ddpi_store_uv_vouch_for(ddp_store_uv *store, const char *job)
{
    char *vouches_for = store->target.auth.vouches_for;
    snprintf(vouches_for, sizeof store->target.auth.vouches_for, "%s", job);
}

int ddp_store_uv_socket(const ddp_store_uv *store)
{
    uv_os_fd_t fd;
    bool up = store->link.state == UV_LINK_UP && store->core.sm.state == CLIENT_OPEN;
    return up && uv_fileno((const uv_handle_t *)&store->tcp, &fd) == 0 ? fd : -1;
}

void ddp_store_uv_close(ddp_store_uv *store, void (*closed)(void *data), void *data)
{
    store->closed_cb = closed;
    store->closed_data = data;
    ddpi_uv_soon(store);
    store->closing = true;
}

/* ---- each turn ---- */

static void report_state(ddp_store_uv *store)
{
    const struct ddpi_client *core = &store->core;
    bool open = core->sm.state == CLIENT_OPEN, ended = core->sm.state == CLIENT_CLOSED;
    enum ddp_store_uv_state state = open            ? DDP_STORE_UV_CONNECTED
                                    : ended         ? DDP_STORE_UV_ENDED
                                    : core->refused ? DDP_STORE_UV_REFUSED
                                                    : DDP_STORE_UV_LOST;
    bool first_attempt = state == DDP_STORE_UV_LOST && core->why.status == DDP_OK;
    if (first_attempt || state == store->reported)
        return;
    store->reported = state;
    if (store->hooks.state != NULL)
        store->hooks.state(store->hooks.data, store, state, open ? "" : core->why.msg);
}

static void on_timer(uv_timer_t *timer)
{
    ddp_store_uv *store = timer->data;
    store->settle(store);
}

static void set_timer(ddp_store_uv *store)
{
    uint64_t at = ddpi_client_next(&store->core), keep = ddpi_uv_keep_alive_next(store);
    at = keep < at ? keep : at;
    if (store->link.state == UV_LINK_CONNECTING && store->address_until_ms < at)
        at = store->address_until_ms;
    if (store->later != NULL && store->later_ms < at)
        at = store->later_ms;
    if (at == UINT64_MAX) {
        uv_timer_stop(&store->timer);
        return;
    }
    uint64_t now_ms = ddpi_monotonic_ms();
    uv_timer_start(&store->timer, on_timer, at > now_ms ? at - now_ms : 0, 0);
}

static void settle_handle(ddp_store_uv *store)
{
    if (store->finished) {
        free_if_closed(store);
        return;
    }
    uint64_t now_ms = ddpi_monotonic_ms();
    call_later(store, now_ms);
    ddpi_uv_cancel_marked(store);
    ddpi_uv_keep_alive_due(store, now_ms);
    if (ddpi_uv_is_connected(store))
        ddpi_uv_send_output(store, now_ms);
    ddpi_client_tick(&store->core, now_ms);
    report_state(store);
    if (store->closing)
        finish_handle(store);
    ddpi_uv_follow_state(store, now_ms);
    if (!store->finished)
        set_timer(store);
}

/* ---- opening ---- */

static ddp_status on_core_event(void *ctx, struct ddpi_client_watch *watch,
                                const struct ddpi_message *message, struct ddp_error *err)
{
    ddp_store_uv *store = ctx;
    struct ddpi_event *event;
    ddp_status status = ddpi_target_event(&store->target, watch->id, message, &event, err);
    if (status != DDP_OK)
        return status;
    if (store->hooks.event != NULL && !store->closing)
        store->hooks.event(store->hooks.data, store, &event->event);
    ddpi_free(event);
    return DDP_OK;
}

static void on_core_opened(void *ctx)
{
    ddpi_uv_keep_alive_all(ctx);
}

uint32_t ddpi_uv_random(void)
{
    uint32_t random = 0;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    return random;
}

static uint32_t next_random(void *ctx)
{
    (void)ctx;
    return ddpi_uv_random();
}

static ddp_status check_hooks(const struct ddp_store_uv_hooks *hooks, struct ddp_error *err)
{
    size_t least = offsetof(struct ddp_store_uv_hooks, session_kept);
    if (hooks != NULL && (hooks->size < least || hooks->size > DDP_STORE_KEY_MAX))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_store_uv_hooks has an impossible size; set it to "
                              "sizeof(struct ddp_store_uv_hooks)");
    return DDP_OK;
}

ddp_status ddp_store_uv_open(struct uv_loop_s *loop, const struct ddp_store_options *options,
                             const struct ddp_store_uv_hooks *hooks, ddp_store_uv **ret_store,
                             struct ddp_error *err)
{
    ddp_status status = check_hooks(hooks, err);
    if (status != DDP_OK)
        return status;
    ddp_store_uv *store = ddpi_calloc(1, sizeof(*store));
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof(*store));
    status = ddpi_target_init(&store->target, options, err);
    if (status != DDP_OK) {
        ddpi_free(store);
        return status;
    }
    const struct ddpi_client_hooks core_hooks = {.ctx = store,
                                                 .done = ddpi_uv_request_done,
                                                 .event = on_core_event,
                                                 .opened = on_core_opened,
                                                 .random = next_random};
    ddpi_client_init(&store->core, &core_hooks);
    store->core.endpoints = store->target.addresses.count;
    store->core.no_reconnect = store->target.flags & DDP_STORE_NO_RECONNECT;
    if (hooks != NULL)
        memcpy(&store->hooks, hooks,
               hooks->size < sizeof store->hooks ? hooks->size : sizeof store->hooks);
    ddpi_list_init(&store->kept);
    ddpi_sm_init(&store->link, &ddpi_uv_link_sm);
    ddpi_buf_init(&store->writing, store->core.requests.out.limit);
    store->loop = loop;
    store->settle = settle_handle;
    uv_timer_init(loop, &store->timer); /* cannot fail, like uv_idle_init() */
    uv_idle_init(loop, &store->soon);
    store->timer.data = store->soon.data = store;
    store->handles = 2;
    ddpi_client_start(&store->core, ddpi_monotonic_ms());
    ddpi_uv_soon(store);
    *ret_store = store;
    return DDP_OK;
}
