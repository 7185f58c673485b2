/*
 * uv_connection.c - the asynchronous client's connection. Owns the socket and the lookup.
 *
 * The happy path: the core wants a connection; the name is looked up, the first address is
 * connected to, the core greets, and bytes go both ways. Each callback ends in the handle's
 * settle().
 *
 * Possible failure modes are:
 *   - the name is unknown, no address accepts, the connection ends: the core learns that it is
 *     lost, and wants another one later;
 *   - the resolver is slow: the core turns to other endpoints meanwhile, and what is found waits
 *     until it comes back to this one;
 *   - an address is silent: the next one is tried;
 *   - the socket is still closing when the next one is wanted: that waits until it has closed.
 */
#include "uv_state.h"

#include "clock.h"
#include "dial.h"
#include "error.h"
#include "keep_alive.h"
#include "mem.h"
#include "uv_error.h"

#include <stdio.h>

DDPI_SM_DEFINE(ddpi_uv_link, UV_LINK_STATES);

enum { ADDRESS_MAX_MS = 2000 }; /* for one address while there are others to try */

bool ddpi_uv_is_connected(const ddp_store_uv *store)
{
    bool wanted = store->core.sm.state == CLIENT_GREETING || store->core.sm.state == CLIENT_OPEN;
    return wanted && store->link.state == UV_LINK_UP;
}

static void lose_connection(ddp_store_uv *store, int uv_err, const char *what)
{
    struct ddp_error err;
    ddpi_uv_error(&err, uv_err, what);
    ddpi_client_lost(&store->core, &err, ddpi_monotonic_ms());
}

/* ---- looking up the name ---- */

static void free_lookup(struct uv_lookup *lookup)
{
    uv_freeaddrinfo(lookup->infos);
    ddpi_free(lookup);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int uv_err, struct addrinfo *infos)
{
    struct uv_lookup *lookup = resolve->data;
    lookup->ended = true;
    lookup->uv_err = uv_err;
    lookup->infos = infos;
    if (lookup->store != NULL)
        lookup->store->settle(lookup->store);
    else
        free_lookup(lookup);
}

static int begin_lookup(ddp_store_uv *store, struct uv_lookup **ret)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const struct ddpi_endpoint *address = &store->target.addresses.at[store->core.endpoint];
    char service[8];
    snprintf(service, sizeof service, "%u", address->port);
    struct uv_lookup *lookup = ddpi_calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return UV_ENOMEM;
    lookup->store = store;
    lookup->request.data = lookup;
    int uv_err =
        uv_getaddrinfo(store->loop, &lookup->request, on_resolved, address->host, service, &hints);
    if (uv_err == 0)
        *ret = lookup;
    else
        ddpi_free(lookup);
    return uv_err;
}

/* Take the addresses of the core's endpoint, if they are known by now. */
static void look_up_name(ddp_store_uv *store)
{
    struct uv_lookup **of_endpoint = &store->lookups[store->core.endpoint];
    struct uv_lookup *lookup = *of_endpoint;
    int uv_err = 0;
    if (lookup == NULL) {
        uv_err = begin_lookup(store, of_endpoint);
    } else if (lookup->ended) {
        uv_err = lookup->uv_err;
        uv_freeaddrinfo(store->infos);
        store->infos = store->next = lookup->infos;
        *of_endpoint = NULL;
        ddpi_free(lookup);
    }
    if (uv_err != 0)
        lose_connection(store, uv_err, "cannot resolve the name of the store");
}

/* Once there is a connection, what they have found would only get old. */
static void forget_ended_lookups(ddp_store_uv *store)
{
    for (uint32_t i = 0; i < store->target.addresses.count; i++) {
        if (store->lookups[i] == NULL || !store->lookups[i]->ended)
            continue;
        free_lookup(store->lookups[i]);
        store->lookups[i] = NULL;
    }
}

void ddpi_uv_leave_lookups(ddp_store_uv *store)
{
    forget_ended_lookups(store);
    for (uint32_t i = 0; i < store->target.addresses.count; i++) {
        struct uv_lookup *lookup = store->lookups[i];
        if (lookup == NULL)
            continue;
        lookup->store = NULL;
        (void)uv_cancel((uv_req_t *)&lookup->request); /* the callback comes in any case */
        store->lookups[i] = NULL;
    }
}

/* ---- reading and closing ---- */

static void on_socket_closed(uv_handle_t *handle)
{
    ddp_store_uv *store = handle->data;
    ddpi_sm_move(&store->link, UV_LINK_NONE);
    ddpi_buf_consume(&store->writing, ddpi_buf_len(&store->writing));
    store->settle(store);
}

/* To the server, an end of file would mean that this process and its sessions have ended. */
static void close_socket(ddp_store_uv *store)
{
    ddpi_sm_move(&store->link, UV_LINK_CLOSING);
    if (!ddpi_uv_holds_session(store) || uv_tcp_close_reset(&store->tcp, on_socket_closed) != 0)
        uv_close((uv_handle_t *)&store->tcp, on_socket_closed);
}

static void on_read_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    ddp_store_uv *store = handle->data;
    size_t len = 0;
    char *base = ddpi_uv_is_connected(store) ? (char *)ddpi_client_room(&store->core, &len) : NULL;
    *ret = uv_buf_init(base, base != NULL ? (unsigned)len : 0);
}

static void on_socket_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    (void)buf;
    ddp_store_uv *store = stream->data;
    if (nread == 0 || !ddpi_uv_is_connected(store))
        return;
    if (nread > 0)
        ddpi_client_received(&store->core, (size_t)nread, ddpi_monotonic_ms());
    else
        lose_connection(store, (int)nread, "the connection ended");
    store->settle(store);
}

static void on_socket_written(uv_write_t *write, int uv_err)
{
    ddp_store_uv *store = write->data;
    ddpi_buf_consume(&store->writing, ddpi_buf_len(&store->writing));
    if (!ddpi_uv_is_connected(store))
        return;
    if (uv_err != 0)
        lose_connection(store, uv_err, "sending");
    store->settle(store);
}

/* ---- connecting ---- */

/* See dial.c: a connection to a port without a listener may reach itself. */
static bool reached_itself(const ddp_store_uv *store)
{
    struct sockaddr_storage here = {0}, there = {0};
    int here_len = sizeof here, there_len = sizeof there;
    return uv_tcp_getsockname(&store->tcp, (struct sockaddr *)&here, &here_len) == 0 &&
           uv_tcp_getpeername(&store->tcp, (struct sockaddr *)&there, &there_len) == 0 &&
           here_len == there_len && memcmp(&here, &there, (size_t)here_len) == 0;
}

static void note_failed_attempt(ddp_store_uv *store, int uv_err)
{
    char text[DDP_ERROR_TEXT / 2];
    size_t used = strlen(store->tried);
    ddpi_errno_describe(-uv_err, text, sizeof text);
    snprintf(store->tried + used, sizeof store->tried - used, "%s%s", used > 0 ? "; " : "", text);
}

static void greet_server(ddp_store_uv *store)
{
    struct ddp_error err;
    struct ddpi_greet_terms terms;
    struct sockaddr_storage name = {0};
    int len = sizeof name;
    (void)uv_tcp_getpeername(&store->tcp, (struct sockaddr *)&name, &len);
    struct ddpi_address peer = ddpi_address_of((const struct sockaddr *)&name);
    if (ddpi_client_auth_terms(&store->target.auth, &peer, &terms, &err) == DDP_OK)
        ddpi_client_connected(&store->core, &terms, ddpi_monotonic_ms());
    else
        ddpi_client_lost(&store->core, &err, ddpi_monotonic_ms());
}

static void on_connected(uv_connect_t *connect, int uv_err)
{
    ddp_store_uv *store = connect->data;
    uv_os_fd_t fd;
    if (store->link.state != UV_LINK_CONNECTING)
        return;
    if (uv_err == 0 && reached_itself(store))
        uv_err = UV_ECONNREFUSED;
    if (uv_err == 0)
        uv_err = uv_read_start((uv_stream_t *)&store->tcp, on_read_alloc, on_socket_read);
    if (uv_err == 0) {
        ddpi_sm_move(&store->link, UV_LINK_UP);
        if (uv_fileno((uv_handle_t *)&store->tcp, &fd) == 0)
            ddpi_link_tune(fd);
        if (store->core.sm.state == CLIENT_DIALING)
            greet_server(store);
    } else {
        note_failed_attempt(store, uv_err);
        close_socket(store);
    }
    store->settle(store);
}

static void connect_next(ddp_store_uv *store, uint64_t now_ms)
{
    const struct addrinfo *info = store->next;
    store->next = info->ai_next;
    store->address_until_ms = store->next != NULL ? now_ms + ADDRESS_MAX_MS : store->core.at_ms;
    uv_tcp_init(store->loop, &store->tcp);
    store->tcp.data = store->connect.data = store->write.data = store;
    ddpi_sm_move(&store->link, UV_LINK_CONNECTING);
    int uv_err = uv_tcp_connect(&store->connect, &store->tcp, info->ai_addr, on_connected);
    if (uv_err != 0) {
        note_failed_attempt(store, uv_err);
        close_socket(store);
    }
}

/* ---- writing ---- */

void ddpi_uv_send_output(ddp_store_uv *store, uint64_t now_ms)
{
    uv_stream_t *stream = (uv_stream_t *)&store->tcp;
    ddpi_client_fill(&store->core, now_ms);
    if (ddpi_buf_len(&store->writing) > 0)
        return;
    for (int sent = 1; sent > 0;) {
        const struct ddpi_buf *out = ddpi_client_output(&store->core, now_ms);
        uv_buf_t bytes = uv_buf_init((char *)out->data + out->head, (unsigned)ddpi_buf_len(out));
        if (!ddpi_uv_is_connected(store) || bytes.len == 0)
            return;
        sent = uv_try_write(stream, &bytes, 1);
        if (sent < 0 && sent != UV_EAGAIN) {
            lose_connection(store, sent, "sending");
            return;
        }
        if (sent > 0)
            ddpi_client_sent(&store->core, (size_t)sent);
    }
    ddpi_client_take_output(&store->core, &store->writing);
    uv_buf_t bytes = uv_buf_init((char *)store->writing.data + store->writing.head,
                                 (unsigned)ddpi_buf_len(&store->writing));
    int uv_err = uv_write(&store->write, stream, &bytes, 1, on_socket_written);
    if (uv_err != 0)
        lose_connection(store, uv_err, "sending");
}

/* ---- following the core ---- */

/* The core wants a connection and there is none: one step towards it. */
static void dial_step(ddp_store_uv *store, uint64_t now_ms)
{
    if (store->next == NULL && store->tried[0] == '\0')
        look_up_name(store);
    if (store->next != NULL) {
        connect_next(store, now_ms);
    } else if (store->tried[0] != '\0') {
        struct ddp_error err;
        char text[DDPI_HOST_MAX + 16];
        ddpi_endpoint_text(&store->target.addresses.at[store->core.endpoint], text, sizeof text);
        ddpi_error_set(&err, DDP_E_UNREACHABLE, "%s: %s", text, store->tried);
        store->tried[0] = '\0';
        ddpi_client_lost(&store->core, &err, now_ms);
    }
}

void ddpi_uv_follow_state(ddp_store_uv *store, uint64_t now_ms)
{
    unsigned state = store->core.sm.state;
    bool dialling = state == CLIENT_DIALING;
    if (!dialling) { /* the next attempt starts with a lookup */
        store->next = NULL;
        store->tried[0] = '\0';
    }
    if (state == CLIENT_OPEN)
        forget_ended_lookups(store);
    if (store->link.state == UV_LINK_UP && !ddpi_uv_is_connected(store))
        close_socket(store);
    else if (store->link.state == UV_LINK_CONNECTING &&
             (!dialling || now_ms >= store->address_until_ms)) {
        if (dialling)
            note_failed_attempt(store, UV_ETIMEDOUT);
        close_socket(store);
    }
    if (dialling && store->link.state == UV_LINK_NONE)
        dial_step(store, now_ms);
}
