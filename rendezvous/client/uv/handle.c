/*
 * handle.c - the asynchronous client's handle: the client core (client_core.c) on a libuv loop.
 * Owns the socket, the timer and the idle handle; never runs the loop.
 *
 * The happy path: the core wants a connection; the name is looked up, the first address is
 * connected to, the core greets; what is submitted is sent in the next turn. Each callback of libuv
 * ends in settle(), which makes of the handles what the core's state says.
 *
 * Possible failure modes are:
 *   - the name is unknown, all addresses refuse or are silent, the connection ends: the core is
 * told that it is lost, and will want another one;
 *   - the socket is still closing when the next one is wanted: that waits for its end;
 *   - the caller closes the handle meanwhile: the socket is ended first, then the memory; a look-up
 *     is left to itself.
 */
#include "client_store.h"
#include "error.h"
#include "mem.h"
#include "uv_error.h"
#include "uv_impl.h"
#include "uv_later.h"

#include <stdio.h>
#include <sys/random.h>

DDPI_SM_DEFINE(ddpi_uv_link, UV_LINK_STATES);

enum { ADDRESS_MAX_MS = 2000 }; /* for one address while there are others to try */

static void settle(ddp_store_uv *store);

uint64_t ddpi_uv_now(void)
{
    return uv_hrtime() / 1000000;
}

static void on_soon(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    settle(idle->data);
}

void ddpi_uv_soon(ddp_store_uv *store)
{
    if (!store->finished)
        uv_idle_start(&store->soon, on_soon);
}

void ddpi_uv_later(ddp_store_uv *store, uint32_t delay_ms, void (*due)(void *data), void *data)
{
    store->later_ms = ddpi_uv_now() + delay_ms;
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

static bool connected(const ddp_store_uv *store)
{
    return store->core.sm.state == CLIENT_GREETING || store->core.sm.state == CLIENT_OPEN;
}

static void lose(ddp_store_uv *store, int uv_err, const char *what)
{
    struct ddp_error err;
    ddpi_uv_error(&err, uv_err, what);
    ddpi_client_lost(&store->core, &err, ddpi_uv_now());
}

/* --- ending --- */

static void maybe_closed(ddp_store_uv *store)
{
    if (store->handles > 0 || store->link.state != UV_LINK_NONE)
        return;
    void (*closed)(void *data) = store->closed_cb;
    void *data = store->closed_data;
    ddpi_client_finish(&store->core);
    ddpi_buf_finish(&store->flight);
    ddpi_target_finish(&store->target);
    uv_freeaddrinfo(store->infos);
    ddpi_free(store);
    if (closed != NULL)
        closed(data);
}

static void on_handle_closed(uv_handle_t *handle)
{
    ddp_store_uv *store = handle->data;
    store->handles--;
    maybe_closed(store);
}

/* If it has begun, it ends when the resolver likes. */
static void leave_lookup(ddp_store_uv *store)
{
    store->lookup->store = NULL;
    (void)uv_cancel((uv_req_t *)&store->lookup->request); /* in any case its callback comes */
    store->lookup = NULL;
    ddpi_sm_move(&store->link, UV_LINK_NONE);
}

static void finish(ddp_store_uv *store)
{
    const struct ddp_error err = {.status = DDP_E_CANCELED, .msg = "the handle is closed"};
    store->finished = true;
    ddpi_client_close(&store->core, &err);
    ddpi_uv_unkeep_all(store);
    if (store->link.state == UV_LINK_RESOLVING)
        leave_lookup(store);
    uv_close((uv_handle_t *)&store->timer, on_handle_closed);
    uv_close((uv_handle_t *)&store->soon, on_handle_closed);
}

bool ddpi_store_uv_met(const ddp_store_uv *store, uint64_t *ret_number)
{
    return ddpi_client_met(&store->core, ret_number);
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

/* --- the connection --- */

static void on_tcp_closed(uv_handle_t *handle)
{
    ddp_store_uv *store = handle->data;
    ddpi_sm_move(&store->link, UV_LINK_NONE);
    ddpi_buf_consume(&store->flight, ddpi_buf_len(&store->flight));
    if (store->finished)
        maybe_closed(store);
    else
        settle(store);
}

/* An end of file would tell the server that this process is no more, and all that it holds over. */
static void close_tcp(ddp_store_uv *store)
{
    ddpi_sm_move(&store->link, UV_LINK_CLOSING);
    if (!ddpi_uv_holds(store) || uv_tcp_close_reset(&store->tcp, on_tcp_closed) != 0)
        uv_close((uv_handle_t *)&store->tcp, on_tcp_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    ddp_store_uv *store = handle->data;
    size_t len = 0;
    char *base = connected(store) ? (char *)ddpi_client_room(&store->core, &len) : NULL;
    *ret = uv_buf_init(base, base != NULL ? (unsigned)len : 0);
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    (void)buf;
    ddp_store_uv *store = stream->data;
    if (nread == 0 || !connected(store))
        return;
    if (nread > 0)
        ddpi_client_received(&store->core, (size_t)nread, ddpi_uv_now());
    else
        lose(store, (int)nread, "the connection ended");
    settle(store);
}

static void on_written(uv_write_t *write, int uv_err)
{
    ddp_store_uv *store = write->data;
    ddpi_buf_consume(&store->flight, ddpi_buf_len(&store->flight));
    if (store->link.state != UV_LINK_UP || !connected(store))
        return;
    if (uv_err != 0)
        lose(store, uv_err, "sending");
    settle(store);
}

/* See dial.c: a port on which nobody listens may be reached from itself. */
static bool reached_itself(const ddp_store_uv *store)
{
    struct sockaddr_storage here = {0}, there = {0};
    int here_len = sizeof here, there_len = sizeof there;
    return uv_tcp_getsockname(&store->tcp, (struct sockaddr *)&here, &here_len) == 0 &&
           uv_tcp_getpeername(&store->tcp, (struct sockaddr *)&there, &there_len) == 0 &&
           here_len == there_len && memcmp(&here, &there, (size_t)here_len) == 0;
}

static void note_attempt(ddp_store_uv *store, int uv_err)
{
    size_t used = strlen(store->tried);
    snprintf(store->tried + used, sizeof store->tried - used, "%s%s", used > 0 ? "; " : "",
             uv_strerror(uv_err));
}

static void greet(ddp_store_uv *store)
{
    struct ddp_error err;
    struct ddpi_greet_terms terms;
    struct sockaddr_storage name = {0};
    int len = sizeof name;
    (void)uv_tcp_getpeername(&store->tcp, (struct sockaddr *)&name, &len);
    struct ddpi_address peer = ddpi_address_of((const struct sockaddr *)&name);
    if (ddpi_client_auth_terms(&store->target.auth, &peer, &terms, &err) == DDP_OK)
        ddpi_client_connected(&store->core, &terms, ddpi_uv_now());
    else
        ddpi_client_lost(&store->core, &err, ddpi_uv_now());
}

static void on_connected(uv_connect_t *connect, int uv_err)
{
    ddp_store_uv *store = connect->data;
    if (store->link.state != UV_LINK_CONNECTING)
        return;
    if (uv_err == 0 && reached_itself(store))
        uv_err = UV_ECONNREFUSED;
    if (uv_err == 0)
        uv_err = uv_read_start((uv_stream_t *)&store->tcp, on_alloc, on_read);
    if (uv_err == 0) {
        ddpi_sm_move(&store->link, UV_LINK_UP);
        uv_tcp_nodelay(&store->tcp, 1);
        uv_tcp_keepalive(&store->tcp, 1, 60);
        if (store->core.sm.state == CLIENT_DIALING)
            greet(store);
    } else {
        note_attempt(store, uv_err);
        close_tcp(store);
    }
    settle(store);
}

static void connect_next(ddp_store_uv *store, uint64_t now_ms)
{
    const struct addrinfo *info = store->next;
    store->next = info->ai_next;
    store->address_until = store->next != NULL ? now_ms + ADDRESS_MAX_MS : store->core.at_ms;
    uv_tcp_init(store->loop, &store->tcp);
    store->tcp.data = store->connect.data = store->write.data = store;
    ddpi_sm_move(&store->link, UV_LINK_CONNECTING);
    int uv_err = uv_tcp_connect(&store->connect, &store->tcp, info->ai_addr, on_connected);
    if (uv_err != 0) {
        note_attempt(store, uv_err);
        close_tcp(store);
    }
}

static void on_resolved(uv_getaddrinfo_t *resolve, int uv_err, struct addrinfo *infos)
{
    struct uv_lookup *lookup = resolve->data;
    ddp_store_uv *store = lookup->store;
    ddpi_free(lookup);
    if (store == NULL) {
        uv_freeaddrinfo(infos);
        return;
    }
    store->lookup = NULL;
    ddpi_sm_move(&store->link, UV_LINK_NONE);
    store->infos = store->next = infos;
    if (uv_err != 0 && store->core.sm.state == CLIENT_DIALING)
        lose(store, uv_err, "cannot resolve the name of the store");
    settle(store);
}

static void look_up(ddp_store_uv *store)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[8];
    snprintf(service, sizeof service, "%u", store->target.address.port);
    uv_freeaddrinfo(store->infos);
    store->infos = store->next = NULL;
    store->tried[0] = '\0';
    struct uv_lookup *lookup = ddpi_calloc(1, sizeof *lookup);
    int uv_err = UV_ENOMEM;
    if (lookup != NULL) {
        lookup->store = store;
        lookup->request.data = lookup;
        uv_err = uv_getaddrinfo(store->loop, &lookup->request, on_resolved,
                                store->target.address.host, service, &hints);
    }
    if (uv_err == 0) {
        store->lookup = lookup;
        ddpi_sm_move(&store->link, UV_LINK_RESOLVING);
    } else {
        ddpi_free(lookup);
        lose(store, uv_err, "cannot resolve the name of the store");
    }
}

/* The core wants a connection, and there is none. */
static void dial(ddp_store_uv *store, uint64_t now_ms)
{
    if (store->next != NULL) {
        connect_next(store, now_ms);
    } else if (store->tried[0] == '\0') {
        look_up(store);
    } else {
        struct ddp_error err;
        ddpi_error_set(&err, DDP_E_UNREACHABLE, "%s: %s", store->target.endpoint, store->tried);
        store->tried[0] = '\0';
        ddpi_client_lost(&store->core, &err, now_ms);
    }
}

static void send_output(ddp_store_uv *store, uint64_t now_ms)
{
    uv_stream_t *stream = (uv_stream_t *)&store->tcp;
    ddpi_client_fill(&store->core, now_ms);
    if (ddpi_buf_len(&store->flight) > 0)
        return;
    for (int sent = 1; sent > 0;) {
        const struct ddpi_buf *out = ddpi_client_output(&store->core, now_ms);
        uv_buf_t bytes = uv_buf_init((char *)out->data + out->head, (unsigned)ddpi_buf_len(out));
        if (!connected(store) || bytes.len == 0)
            return;
        sent = uv_try_write(stream, &bytes, 1);
        if (sent < 0 && sent != UV_EAGAIN) {
            lose(store, sent, "sending");
            return;
        }
        if (sent > 0)
            ddpi_client_sent(&store->core, (size_t)sent);
    }
    ddpi_client_take_output(&store->core, &store->flight);
    uv_buf_t bytes = uv_buf_init((char *)store->flight.data + store->flight.head,
                                 (unsigned)ddpi_buf_len(&store->flight));
    int uv_err = uv_write(&store->write, stream, &bytes, 1, on_written);
    if (uv_err != 0)
        lose(store, uv_err, "sending");
}

/* --- settling --- */

/* Make of the link what the core's state says. */
static void follow_state(ddp_store_uv *store, uint64_t now_ms)
{
    unsigned state = store->core.sm.state;
    bool dialling = state == CLIENT_DIALING;
    if (!dialling) { /* the next time begins with a look-up */
        store->next = NULL;
        store->tried[0] = '\0';
    }
    if (store->link.state == UV_LINK_UP && !connected(store))
        close_tcp(store);
    else if (store->link.state == UV_LINK_CONNECTING &&
             (!dialling || now_ms >= store->address_until)) {
        if (dialling)
            note_attempt(store, UV_ETIMEDOUT);
        close_tcp(store);
    }
    if (dialling && store->link.state == UV_LINK_NONE)
        dial(store, now_ms);
}

static void tell_state(ddp_store_uv *store)
{
    const struct ddpi_client *core = &store->core;
    bool open = core->sm.state == CLIENT_OPEN, ended = core->sm.state == CLIENT_CLOSED;
    enum ddp_store_uv_state state = open            ? DDP_STORE_UV_CONNECTED
                                    : ended         ? DDP_STORE_UV_ENDED
                                    : core->refused ? DDP_STORE_UV_REFUSED
                                                    : DDP_STORE_UV_LOST;
    bool first = state == DDP_STORE_UV_LOST && core->why.status == DDP_OK; /* is not over yet */
    if (first || state == store->told)
        return;
    store->told = state;
    if (store->hooks.state != NULL)
        store->hooks.state(store->hooks.data, store, state, open ? "" : core->why.msg);
}

static void on_timer(uv_timer_t *timer)
{
    settle(timer->data);
}

static void set_timer(ddp_store_uv *store)
{
    uint64_t at = ddpi_client_next(&store->core), keep = ddpi_uv_keep_next(store);
    at = keep < at ? keep : at;
    if (store->link.state == UV_LINK_CONNECTING && store->address_until < at)
        at = store->address_until;
    if (store->later != NULL && store->later_ms < at)
        at = store->later_ms;
    if (at == UINT64_MAX) {
        uv_timer_stop(&store->timer);
        return;
    }
    uint64_t now_ms = ddpi_uv_now();
    uv_timer_start(&store->timer, on_timer, at > now_ms ? at - now_ms : 0, 0);
}

static void settle(ddp_store_uv *store)
{
    if (store->finished)
        return;
    uint64_t now_ms = ddpi_uv_now();
    call_later(store, now_ms);
    ddpi_uv_cancel_marked(store);
    ddpi_uv_keep_due(store, now_ms);
    if (connected(store) && store->link.state == UV_LINK_UP)
        send_output(store, now_ms);
    ddpi_client_tick(&store->core, now_ms);
    tell_state(store);
    if (store->closing)
        finish(store);
    follow_state(store, now_ms);
    if (!store->finished)
        set_timer(store);
}

/* --- beginning --- */

static ddp_status on_event(void *ctx, struct ddpi_client_watch *watch,
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

static void on_opened(void *ctx)
{
    ddpi_uv_keep_all(ctx);
}

uint32_t ddpi_uv_random(void)
{
    uint32_t random = 0; /* without any: at once, which is what it is for a client alone */
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
                              "struct ddp_store_uv_hooks has no plausible size; set it to "
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
                                                 .done = ddpi_uv_done,
                                                 .event = on_event,
                                                 .opened = on_opened,
                                                 .random = next_random};
    ddpi_client_init(&store->core, &core_hooks);
    store->core.no_reconnect = store->target.flags & DDP_STORE_NO_RECONNECT;
    if (hooks != NULL)
        memcpy(&store->hooks, hooks,
               hooks->size < sizeof store->hooks ? hooks->size : sizeof store->hooks);
    ddpi_list_init(&store->kept);
    ddpi_sm_init(&store->link, &ddpi_uv_link_sm);
    ddpi_buf_init(&store->flight, store->core.out.limit);
    store->loop = loop;
    uv_timer_init(loop, &store->timer); /* these two only fill in the handle */
    uv_idle_init(loop, &store->soon);
    store->timer.data = store->soon.data = store;
    store->handles = 2;
    ddpi_client_start(&store->core, ddpi_uv_now());
    ddpi_uv_soon(store);
    *ret_store = store;
    return DDP_OK;
}
