/*
 * http_server.c - runs a daemon of libmicrohttpd that has no thread and no listening socket: its
 * epoll descriptor and its next timeout are two handles of the loop. Owns the daemon, the handles,
 * and the requests that are being read or answered.
 *
 * The happy path of a request: on_access() is called once with its head, then for each piece of its
 * body, then once more without one: the owner is asked, and the connection is suspended.
 * http_answer() resumes it, and on_access() is called a last time, to send the answer.
 */
#include "http_server.h"

#include "buf.h"
#include "error.h"
#include "http_connections.h"
#include "http_library.h"
#include "mem.h"
#include "parse.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

struct http_server {
    struct http_library mhd;
    struct http_options options;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles;  /* not closed yet */
    size_t body_total; /* bytes of all bodies */
    struct http_connections connections;
    bool running, again; /* within MHD_run(); it must be called once more */
};

/* What the owner sees comes first. */
struct exchange {
    struct http_request request;
    struct http_server *server;
    struct MHD_Connection *connection;
    struct ddpi_buf body;
    size_t counted; /* of @body in the server's sum */
    bool no_room;   /* for its body, among all */
    bool refused;   /* by its head: what else comes on the connection is not read */
    bool suspended;
    unsigned status;               /* of the answer; 0: none yet */
    struct MHD_Response *response; /* NULL: no body */
};

/* ---- the library in the loop ---- */

static uint64_t now_ms(const struct http_server *server)
{
    return uv_now(server->poll.loop);
}

static void on_due(uv_timer_t *timer);

static void set_timer(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG own_ms;
    /* The library sees those that this shuts down through its descriptor. */
    uint64_t ms = http_connections_expire(&server->connections, now_ms(server));
    if (server->mhd.MHD_get_timeout(server->daemon, &own_ms) == MHD_YES && own_ms < ms)
        ms = own_ms;
    /* At least 1 ms: a timer that is due at once fires again before the loop looks at any other
     * handle, so that one client with many requests would stop it. */
    if (ms < UINT64_MAX)
        uv_timer_start(&server->timer, on_due, ms > 0 ? ms : 1, 0);
    else
        uv_timer_stop(&server->timer);
}

static void advance(struct http_server *server)
{
    server->again = true;
    if (server->running)
        return;
    server->running = true;
    while (server->again) {
        server->again = false;
        server->mhd.MHD_run(server->daemon);
    }
    server->running = false;
    set_timer(server);
}

static void on_due(uv_timer_t *timer)
{
    advance(timer->data);
}

static void on_ready(uv_poll_t *poll, int uv_err, int events)
{
    (void)uv_err, (void)events;
    advance(poll->data);
}

/* ---- connections ---- */

static void on_connection(void *ctx, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = ctx;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context != NULL)
            http_connections_remove(&server->connections, *context);
        return;
    }
    const union MHD_ConnectionInfo *info =
        server->mhd.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info->connect_fd;
    *context = http_connections_add(&server->connections, fd, now_ms(server));
    if (*context == NULL) /* nothing would limit its time */
        shutdown(fd, SHUT_RDWR);
}

/* NULL: there was no memory for it. */
static struct http_connection *own_of(struct http_server *server, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        server->mhd.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* Its client may begin another request, or has an answer to read. */
static void await_client(struct http_server *server, struct MHD_Connection *connection)
{
    struct http_connection *own = own_of(server, connection);
    if (own != NULL)
        http_connection_await(&server->connections, own, now_ms(server));
}

static void await_owner(struct http_server *server, struct MHD_Connection *connection)
{
    struct http_connection *own = own_of(server, connection);
    if (own != NULL)
        http_connection_pause(own);
}

/* ---- one request ---- */

static struct exchange *exchange_create(struct http_server *server,
                                        struct MHD_Connection *connection)
{
    struct exchange *exchange = ddpi_calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return NULL;
    exchange->server = server;
    exchange->connection = connection;
    ddpi_buf_init(&exchange->body, server->options.max_body);
    return exchange;
}

static void drop_body(struct exchange *exchange)
{
    ddpi_buf_finish(&exchange->body);
    exchange->server->body_total -= exchange->counted;
    exchange->counted = 0;
}

static void exchange_destroy(struct exchange *exchange)
{
    drop_body(exchange);
    if (exchange->response != NULL)
        exchange->server->mhd.MHD_destroy_response(exchange->response);
    ddpi_free(exchange);
}

static struct MHD_Response *make_response(struct http_server *server, const void *bytes, size_t len)
{
    /* The library copies the bytes, and does not write to them. */
    const void *source = len > 0 ? bytes : "";
    void *copied;
    memcpy(&copied, &source, sizeof copied);
    return server->mhd.MHD_create_response_from_buffer(len, copied, MHD_RESPMEM_MUST_COPY);
}

/* What HTTP demands of some answers; and no browser may guess that text is a script. */
static void add_headers(struct exchange *exchange)
{
    const struct http_library *mhd = &exchange->server->mhd;
    if (exchange->status == MHD_HTTP_UNAUTHORIZED)
        (void)mhd->MHD_add_response_header(exchange->response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                           "Bearer");
    if (exchange->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)mhd->MHD_add_response_header(exchange->response, MHD_HTTP_HEADER_ALLOW,
                                           exchange->server->options.methods);
    if (exchange->refused)
        (void)mhd->MHD_add_response_header(exchange->response, MHD_HTTP_HEADER_CONNECTION, "close");
    (void)mhd->MHD_add_response_header(exchange->response, "X-Content-Type-Options", "nosniff");
}

static enum MHD_Result send_response(struct exchange *exchange)
{
    struct http_server *server = exchange->server;
    if (exchange->response == NULL)
        exchange->response = make_response(server, NULL, 0);
    if (exchange->response == NULL)
        return MHD_NO; /* closes the connection */
    add_headers(exchange);
    return server->mhd.MHD_queue_response(exchange->connection, exchange->status,
                                          exchange->response);
}

/* Its head has promised that it is not too large. */
static void add_body(struct exchange *exchange, const char *bytes, size_t len)
{
    struct http_server *server = exchange->server;
    if (exchange->no_room || len > server->options.max_body_total - server->body_total ||
        !ddpi_buf_append(&exchange->body, bytes, len)) {
        exchange->no_room = true;
        drop_body(exchange);
        return;
    }
    exchange->counted += len;
    server->body_total += len;
}

static const char *header_of(struct http_server *server, struct MHD_Connection *connection,
                             const char *name)
{
    return server->mhd.MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* NULL: only HTTP/1.0, which no browser speaks, may leave it out. */
static bool names_loopback(const char *host)
{
    struct ddpi_endpoint endpoint;
    return host == NULL || (ddpi_parse_endpoint(host, &endpoint, NULL) == DDP_OK &&
                            ddpi_host_is_loopback(endpoint.host));
}

static unsigned ask_owner(struct exchange *exchange, const char *method, const char *path)
{
    struct http_server *server = exchange->server;
    const struct http_options *options = &server->options;
    const union MHD_ConnectionInfo *info = server->mhd.MHD_get_connection_info(
        exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    exchange->request = (struct http_request){
        .method = method,
        .path = path,
        .authorization = header_of(server, exchange->connection, MHD_HTTP_HEADER_AUTHORIZATION),
        .names_loopback =
            names_loopback(header_of(server, exchange->connection, MHD_HTTP_HEADER_HOST)),
        .fd = info != NULL ? info->connect_fd : -1,
        .body = ddpi_buf_head(&exchange->body),
        .body_len = ddpi_buf_len(&exchange->body)};
    return options->request(options->ctx, &exchange->request);
}

/* What can be refused before a body comes, is; 0: nothing. Without a length at its head a body
 * could be refused in its midst only. */
static unsigned check_head(struct http_server *server, struct MHD_Connection *connection)
{
    int64_t bytes;
    const char *len = header_of(server, connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!server->options.any_host &&
        !names_loopback(header_of(server, connection, MHD_HTTP_HEADER_HOST)))
        return MHD_HTTP_FORBIDDEN;
    if (header_of(server, connection, MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL)
        return MHD_HTTP_LENGTH_REQUIRED;
    if (len != NULL &&
        ddpi_parse_int(len, 0, (int64_t)server->options.max_body, &bytes, NULL) != DDP_OK)
        return MHD_HTTP_CONTENT_TOO_LARGE;
    return 0;
}

static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection,
                             void **exchange_of)
{
    struct exchange *exchange = exchange_create(server, connection);
    *exchange_of = exchange;
    if (exchange == NULL)
        return MHD_NO;
    exchange->status = check_head(server, connection);
    exchange->refused = exchange->status != 0;
    return exchange->refused ? send_response(exchange) : MHD_YES;
}

static enum MHD_Result on_access(void *ctx, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_len, void **exchange_of)
{
    struct http_server *server = ctx;
    struct exchange *exchange = *exchange_of;
    (void)version;
    if (exchange == NULL)
        return begin(server, connection, exchange_of);
    if (*upload_len > 0) {
        add_body(exchange, upload, *upload_len);
        *upload_len = 0;
        return MHD_YES;
    }
    if (exchange->status == 0) {
        unsigned status =
            exchange->no_room ? MHD_HTTP_SERVICE_UNAVAILABLE : ask_owner(exchange, method, url);
        exchange->status = status != 0 ? status : exchange->status;
    }
    if (exchange->status != 0)
        return send_response(exchange);
    exchange->suspended = true;
    await_owner(server, connection);
    server->mhd.MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **exchange_of,
                         enum MHD_RequestTerminationCode how)
{
    (void)how;
    await_client(ctx, connection);
    if (*exchange_of != NULL)
        exchange_destroy(*exchange_of);
    *exchange_of = NULL;
}

void http_answer(struct http_request *request, unsigned status, const char *type, const void *bytes,
                 size_t len)
{
    struct exchange *exchange = (struct exchange *)request;
    struct http_server *server = exchange->server;
    exchange->response = make_response(server, bytes, len);
    exchange->status = exchange->response != NULL ? status : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (exchange->response != NULL && type != NULL)
        (void)server->mhd.MHD_add_response_header(exchange->response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                                  type);
    drop_body(exchange);
    if (!exchange->suspended)
        return; /* on_access() has called, and sends it */
    exchange->suspended = false;
    await_client(server, exchange->connection);
    server->mhd.MHD_resume_connection(exchange->connection);
    advance(server);
}

/* ---- life ---- */

static void on_log(void *ctx, const char *format, va_list words)
{
    (void)ctx, (void)format, (void)words; /* what a client does wrong is the client's affair */
}

static ddp_status start_daemon(struct http_server *server, struct ddp_error *err)
{
    const struct http_options *options = &server->options;
    server->daemon = server->mhd.MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_access, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_CONNECTION_LIMIT, options->max_connections, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    return server->daemon != NULL
               ? DDP_OK
               : ddpi_error_set(err, DDP_E_SYSTEM,
                                "libmicrohttpd cannot start, for lack of memory or descriptors");
}

static ddp_status watch_daemon(struct http_server *server, uv_loop_t *loop, struct ddp_error *err)
{
    const union MHD_DaemonInfo *info =
        server->mhd.MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int uv_err = info != NULL ? uv_poll_init(loop, &server->poll, info->epoll_fd) : UV_ENOTSUP;
    if (uv_err != 0)
        return ddpi_error_sys(err, -uv_err, "cannot watch libmicrohttpd's descriptor");
    uv_timer_init(loop, &server->timer);
    server->poll.data = server->timer.data = server;
    server->handles = 2;
    uv_poll_start(&server->poll, UV_READABLE, on_ready);
    return DDP_OK;
}

ddp_status http_server_create(uv_loop_t *loop, const struct http_options *options,
                              struct http_server **ret, struct ddp_error *err)
{
    struct http_server *server = ddpi_calloc(1, sizeof *server);
    if (server == NULL)
        return ddpi_error_nomem(err, sizeof *server);
    server->options = *options;
    http_connections_init(&server->connections, options->max_connections, options->limit_ms);
    ddp_status status = http_library_load(&server->mhd, err);
    if (status == DDP_OK)
        status = start_daemon(server, err);
    if (status == DDP_OK)
        status = watch_daemon(server, loop, err);
    if (status != DDP_OK) {
        if (server->daemon != NULL)
            server->mhd.MHD_stop_daemon(server->daemon);
        ddpi_free(server);
        return status;
    }
    *ret = server;
    return DDP_OK;
}

void http_server_take(struct http_server *server, int fd, const struct sockaddr *peer)
{
    socklen_t len =
        peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (http_connections_make_room(&server->connections))
        advance(server);
    /* On failure it closes the descriptor. */
    (void)server->mhd.MHD_add_connection(server->daemon, fd, peer, len);
    advance(server);
}

static void on_http_handle_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;
    if (--server->handles == 0)
        ddpi_free(server);
}

void http_server_destroy(struct http_server *server)
{
    if (server == NULL)
        return;
    uv_close((uv_handle_t *)&server->poll, on_http_handle_closed);
    uv_close((uv_handle_t *)&server->timer, on_http_handle_closed);
    server->mhd.MHD_stop_daemon(server->daemon);
}
