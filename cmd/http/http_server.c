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
#include "http_library.h"
#include "list.h"
#include "mem.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct http_server {
    struct http_library mhd;
    struct http_options options;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned handles;  /* not closed yet */
    size_t body_total; /* bytes of all bodies */
    struct ddpi_list connections;
    unsigned count;      /* of these */
    bool running, again; /* within MHD_run(); it must be called once more */
};

/* A connection, from its first byte to its last. */
struct http_connection {
    struct ddpi_list of_server; /* in the order in which they began to wait */
    int fd;
    bool waits; /* for the head of a request */
};

/* What the owner sees comes first. */
struct exchange {
    struct http_request request;
    struct http_server *server;
    struct MHD_Connection *connection;
    struct ddpi_buf body;
    size_t counted; /* of @body in the server's sum */
    bool too_large;
    bool suspended;
    unsigned status;               /* of the answer; 0: none yet */
    struct MHD_Response *response; /* NULL: no body */
};

/* ---- the library in the loop ----------------------------------------------------------------- */

static void on_due(uv_timer_t *timer);

static void set_timer(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG ms;
    /* At least 1 ms: a timer that is due at once fires again before the loop looks at any other
     * handle, so that one client with many requests would stop it. */
    if (server->mhd.MHD_get_timeout(server->daemon, &ms) == MHD_YES)
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

/* ---- connections ------------------------------------------------------------------------------
 */

static void on_connection(void *ctx, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = ctx;
    struct http_connection *own = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (own != NULL) {
            ddpi_list_remove(&own->of_server);
            server->count--;
        }
        ddpi_free(own);
        return;
    }
    const union MHD_ConnectionInfo *info =
        server->mhd.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    own = ddpi_calloc(1, sizeof *own);
    if (own == NULL)
        return; /* it is served, and cannot be evicted */
    own->fd = info->connect_fd;
    own->waits = true;
    ddpi_list_append(&server->connections, &own->of_server);
    server->count++;
    *context = own;
}

/* The head of a request has come, or its answer has left. */
static void note_waiting(struct http_server *server, struct MHD_Connection *connection, bool waits)
{
    const union MHD_ConnectionInfo *info =
        server->mhd.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_connection *own = info != NULL ? info->socket_context : NULL;
    if (own == NULL)
        return;
    own->waits = waits;
    ddpi_list_remove(&own->of_server);
    ddpi_list_append(&server->connections, &own->of_server);
}

/* Clients that send a byte now and then never are silent. So when no connection is left, the one
 * that has waited longest for the head of a request makes room. */
static void make_room(struct http_server *server)
{
    if (server->count < server->options.max_connections)
        return;
    ddpi_list_for_each (node, &server->connections) {
        const struct http_connection *own =
            ddpi_container_of(node, struct http_connection, of_server);
        if (!own->waits)
            continue;
        shutdown(own->fd, SHUT_RDWR);
        advance(server);
        return;
    }
}

/* ---- one request ------------------------------------------------------------------------------
 */

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

static void add_body(struct exchange *exchange, const char *bytes, size_t len)
{
    struct http_server *server = exchange->server;
    if (exchange->too_large || len > server->options.max_body_total - server->body_total ||
        !ddpi_buf_append(&exchange->body, bytes, len)) {
        exchange->too_large = true;
        drop_body(exchange);
        return;
    }
    exchange->counted += len;
    server->body_total += len;
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
        .authorization = server->mhd.MHD_lookup_connection_value(
            exchange->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION),
        .fd = info != NULL ? info->connect_fd : -1,
        .body = ddpi_buf_head(&exchange->body),
        .body_len = ddpi_buf_len(&exchange->body)};
    return options->request(options->ctx, &exchange->request);
}

static bool is_host(const char *host, const char *name)
{
    size_t len = strlen(name);
    return strncasecmp(host, name, len) == 0 && (host[len] == '\0' || host[len] == ':');
}

/* NULL: only HTTP/1.0, which no browser speaks, may leave it out. */
static bool is_this_machine(const char *host)
{
    return host == NULL || is_host(host, "127.0.0.1") || is_host(host, "localhost") ||
           is_host(host, "[::1]");
}

static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection,
                             void **exchange_of)
{
    struct exchange *exchange = exchange_create(server, connection);
    *exchange_of = exchange;
    if (exchange == NULL)
        return MHD_NO;
    if (server->options.any_host || is_this_machine(server->mhd.MHD_lookup_connection_value(
                                        connection, MHD_HEADER_KIND, "Host")))
        return MHD_YES;
    exchange->status = MHD_HTTP_FORBIDDEN;
    return send_response(exchange);
}

static enum MHD_Result on_access(void *ctx, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_len, void **exchange_of)
{
    struct http_server *server = ctx;
    struct exchange *exchange = *exchange_of;
    (void)version;
    if (exchange == NULL) {
        note_waiting(server, connection, false);
        return begin(server, connection, exchange_of);
    }
    if (*upload_len > 0) {
        add_body(exchange, upload, *upload_len);
        *upload_len = 0;
        return MHD_YES;
    }
    if (exchange->status == 0) {
        unsigned status =
            exchange->too_large ? MHD_HTTP_CONTENT_TOO_LARGE : ask_owner(exchange, method, url);
        exchange->status = status != 0 ? status : exchange->status;
    }
    if (exchange->status != 0)
        return send_response(exchange);
    exchange->suspended = true;
    server->mhd.MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **exchange_of,
                         enum MHD_RequestTerminationCode how)
{
    (void)how;
    note_waiting(ctx, connection, true);
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
    server->mhd.MHD_resume_connection(exchange->connection);
    advance(server);
}

/* ---- life -------------------------------------------------------------------------------------
 */

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
        MHD_OPTION_CONNECTION_LIMIT, options->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        options->silence_s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
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
    ddpi_list_init(&server->connections);
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
    make_room(server);
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
