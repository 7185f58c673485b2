/*
 * server.c - listener, connections and core, put together. Owns all three, and the timer for the
 * core's deadlines.
 *
 * The happy path: a connection is accepted, its requests go to the core, the core's replies to the
 * connections they belong to; each event ends in settle(), which flushes what was written to and
 * sets the timer.
 *
 * Possible failure modes are:
 *   - too many connections: the newest is told so and closed;
 *   - no file descriptor left: the reserve is given up for a moment to take the newest connection
 *     and close it, since one that stays in the backlog would wake the loop without end;
 *   - the system has no memory for another connection: accepting pauses for PAUSE_MS.
 */
#include "server.h"

#include "conn.h"
#include "error.h"
#include "listen.h"
#include "mem.h"
#include "proto.h"
#include "uvx.h"

#include <ddprun/store.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_TURN = 256, /* then the others have their turn */
    PAUSE_MS = 100,
    MAX_CONNECTIONS = 65536,
    OTHER_FILES = 32, /* what the process needs besides connections, at least */
    SCRATCH_SIZE = 32 * 1024,
    TCPSTORE_KEY_MAX = 1024 * 1024,
};

struct ddpi_server {
    struct ddpi_conn_env env;
    struct ddpi_kv *kv;
    struct ddpi_list conns; /* ddpi_conn::of_server */
    struct ddpi_list dirty; /* ddpi_conn::of_dirty */
    struct ddpi_log log;
    uint32_t max_connections;
    uint64_t accepted, refused, requests;
    size_t connections;

    int listen_fd;
    int reserve_fd;
    uint16_t port;
    char endpoint[DDPI_ENDPOINT_MAX];

    uv_poll_t listener;
    uv_timer_t expiry; /* the core's next deadline */
    uv_timer_t pause;  /* until accepting goes on */
    uint64_t expiry_at;
    unsigned handles; /* not closed yet */
    bool closing;
    void (*close_cb)(void *ctx);
    void *close_ctx;

    char scratch[SCRATCH_SIZE];
};

/* --- end --- */

static void server_maybe_closed(struct ddpi_server *server)
{
    if (server->handles > 0 || server->connections > 0)
        return;
    void (*cb)(void *ctx) = server->close_cb;
    void *ctx = server->close_ctx;
    ddpi_kv_destroy(server->kv);
    ddpi_free(server);
    if (cb != NULL)
        cb(ctx);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ddpi_server *server = handle->data;
    server->handles--;
    server_maybe_closed(server);
}

void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->close_cb = cb;
    server->close_ctx = ctx;
    server->closing = true;
    ddpi_list_for_each_safe (node, &server->conns)
        ddpi_conn_close(ddpi_container_of(node, struct ddpi_conn, of_server), DDP_E_CLOSED,
                        "the server is shutting down");
    uv_poll_stop(&server->listener);
    uv_close((uv_handle_t *)&server->listener, on_handle_closed);
    uv_close((uv_handle_t *)&server->expiry, on_handle_closed);
    uv_close((uv_handle_t *)&server->pause, on_handle_closed);
    close(server->listen_fd);
    if (server->reserve_fd >= 0)
        close(server->reserve_fd);
}

/* --- requests and replies --- */

static void settle(void *owner);

static void on_expiry(uv_timer_t *timer)
{
    struct ddpi_server *server = timer->data;
    server->expiry_at = UINT64_MAX;
    ddpi_kv_expire(server->kv, uv_now(server->env.loop));
    settle(server);
}

static void update_expiry(struct ddpi_server *server)
{
    uint64_t at = ddpi_kv_next_deadline(server->kv);
    if (at == server->expiry_at)
        return;
    server->expiry_at = at;
    uint64_t now = uv_now(server->env.loop);
    if (at == UINT64_MAX)
        uv_timer_stop(&server->expiry);
    else
        uv_timer_start(&server->expiry, on_expiry, at > now ? at - now : 0, 0);
}

static void settle(void *owner)
{
    struct ddpi_server *server = owner;
    if (server->closing)
        return;
    while (!ddpi_list_empty(&server->dirty)) {
        struct ddpi_list *node = server->dirty.next;
        ddpi_list_remove(node);
        ddpi_conn_flush(ddpi_container_of(node, struct ddpi_conn, of_dirty));
    }
    update_expiry(server);
}

static void on_request(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request)
{
    struct ddpi_server *server = owner;
    server->requests++;
    ddpi_kv_apply(server->kv, &conn->client, request, uv_now(server->env.loop));
}

static void on_reply(void *ctx, struct ddpi_kv_client *client, const struct ddpi_message *reply)
{
    (void)ctx;
    ddpi_conn_reply(ddpi_container_of(client, struct ddpi_conn, client), reply);
}

static void on_dirty(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    if (ddpi_list_empty(&conn->of_dirty))
        ddpi_list_append(&server->dirty, &conn->of_dirty);
}

static void on_gone(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    ddpi_kv_client_gone(server->kv, &conn->client);
}

static void on_conn_closed(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    ddpi_list_remove(&conn->of_server);
    ddpi_list_remove(&conn->of_dirty);
    server->connections--;
    ddpi_free(conn);
    server_maybe_closed(server);
}

/* --- accepting --- */

/* A few bytes into an empty socket buffer: they fit, or the peer does without. */
static void refuse(struct ddpi_server *server, int fd)
{
    static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    static const char text[] = "the server has as many connections as it may have";
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024);
    if (ddpi_preamble_put(&out, &ours) && ddpi_refusal_put(&out, DDPI_FRAME_BYE, 0, DDP_E_LIMIT, 0,
                                                           ddpi_bytes_of(text, sizeof text - 1)))
        (void)!send(fd, ddpi_buf_head(&out), ddpi_buf_len(&out), MSG_NOSIGNAL | MSG_DONTWAIT);
    ddpi_buf_finish(&out);
    close(fd);
    server->refused++;
    ddpi_log(&server->log, DDPI_LOG_WARN, "refused a connection: there are %zu, which is the limit",
             server->connections);
}

static void admit(struct ddpi_server *server, int fd)
{
    if (server->connections >= server->max_connections) {
        refuse(server, fd);
        return;
    }
    struct ddp_error err;
    struct ddpi_conn *conn = NULL;
    ddp_status status = ddpi_conn_create(&server->env, fd, &conn, &err);
    if (conn != NULL) {
        ddpi_list_append(&server->conns, &conn->of_server);
        server->connections++;
    }
    if (status == DDP_OK) {
        server->accepted++;
        return;
    }
    server->refused++;
    ddpi_log(&server->log, DDPI_LOG_WARN, "lost a connection: %s", err.msg);
    if (conn != NULL)
        ddpi_conn_close(conn, status, err.msg);
}

static int accept_one(struct ddpi_server *server)
{
    int fd;
    do
        fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd;
}

static int open_reserve(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* false if there was no reserve to be given up. */
static bool shed(struct ddpi_server *server)
{
    if (server->reserve_fd < 0)
        return false;
    close(server->reserve_fd);
    int fd = accept_one(server);
    if (fd >= 0) {
        close(fd);
        server->refused++;
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection: no file descriptor is left (raise ulimit -n)");
    }
    server->reserve_fd = open_reserve();
    return fd >= 0;
}

static void on_connectable(uv_poll_t *poll, int uv_err, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct ddpi_server *server = timer->data;
    if (server->reserve_fd < 0)
        server->reserve_fd = open_reserve();
    uv_poll_start(&server->listener, UV_READABLE, on_connectable);
}

static void pause_accepting(struct ddpi_server *server, const char *why)
{
    ddpi_log(&server->log, DDPI_LOG_WARN, "accepts no connection for %d ms: %s", PAUSE_MS, why);
    uv_poll_stop(&server->listener);
    uv_timer_start(&server->pause, on_pause_over, PAUSE_MS, 0);
}

static void on_connectable(uv_poll_t *poll, int uv_err, int events)
{
    (void)events;
    struct ddpi_server *server = poll->data;
    if (uv_err != 0) {
        pause_accepting(server, uv_strerror(uv_err));
        return;
    }
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept_one(server);
        int sys_errno = errno;
        if (fd >= 0) {
            admit(server, fd);
        } else if (sys_errno == EAGAIN) {
            break;
        } else if ((sys_errno != EMFILE && sys_errno != ENFILE) || !shed(server)) {
            pause_accepting(server, uv_strerror(uv_translate_sys_error(sys_errno)));
            break;
        }
    }
}

/* --- beginning --- */

#define OR_DEFAULT(value, standard) ((value) != 0 ? (value) : (standard))

static void take_lower(uint32_t *ret_limit, uint32_t wanted, uint32_t most)
{
    if (wanted != 0)
        *ret_limit = wanted < most ? wanted : most;
}

static void take_options(struct ddpi_server *server, const struct ddpi_server_options *options)
{
    const struct ddpi_conn_limits *conn = &ddpi_conn_limits_default;
    server->env.limits = (struct ddpi_conn_limits){
        .handshake_ms = OR_DEFAULT(options->handshake_ms, conn->handshake_ms),
        .frame_ms = OR_DEFAULT(options->frame_ms, conn->frame_ms),
        .output_ms = OR_DEFAULT(options->output_ms, conn->output_ms),
        .linger_ms = conn->linger_ms,
        .output_soft = OR_DEFAULT(options->output_soft, conn->output_soft),
        .output_hard = OR_DEFAULT(options->output_hard, conn->output_hard),
    };
    struct ddpi_kv_limits *kv = &server->env.kv_limits;
    *kv = ddpi_kv_limits_default;
    kv->keys = OR_DEFAULT(options->max_keys, kv->keys);
    kv->bytes = OR_DEFAULT(options->max_bytes, kv->bytes);
    take_lower(&kv->value_len, options->max_value_len, kv->value_len);
    take_lower(&kv->scoped_key_len, options->tcpstore_max_key_len, TCPSTORE_KEY_MAX);
    take_lower(&kv->scoped_value_len, options->tcpstore_max_value_len, DDP_STORE_VALUE_MAX);
    take_lower(&kv->scoped_many, options->tcpstore_max_keys, kv->scoped_many);
    if (options->log != NULL)
        server->log = *options->log;
    server->max_connections = OR_DEFAULT(options->max_connections, MAX_CONNECTIONS);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 2 * OTHER_FILES &&
        server->max_connections > files.rlim_cur - OTHER_FILES)
        server->max_connections = (uint32_t)(files.rlim_cur - OTHER_FILES);
}

static void init_env(struct ddpi_server *server, uv_loop_t *loop)
{
    server->env.loop = loop;
    server->env.log = &server->log;
    server->env.owner = server;
    server->env.request = on_request;
    server->env.settle = settle;
    server->env.dirty = on_dirty;
    server->env.gone = on_gone;
    server->env.closed = on_conn_closed;
    server->env.scratch = server->scratch;
    server->env.scratch_size = sizeof server->scratch;
}

/* The last step of creation; what it has begun on failure, ddpi_server_close() ends. */
static int start_handles(struct ddpi_server *server)
{
    uv_loop_t *loop = server->env.loop;
    int uv_err = uv_poll_init_socket(loop, &server->listener, server->listen_fd);
    if (uv_err != 0)
        return uv_err;
    uv_timer_init(loop, &server->expiry);
    uv_timer_init(loop, &server->pause);
    server->listener.data = server->expiry.data = server->pause.data = server;
    server->handles = 3;
    return uv_poll_start(&server->listener, UV_READABLE, on_connectable);
}

static ddp_status create_core(struct ddpi_server *server, const char *tcpstore_prefix,
                              struct ddp_error *err)
{
    uint8_t seed[DDPI_SEED_SIZE];
    if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return ddpi_error_sys(err, errno, "cannot get random bytes");
    server->kv = ddpi_kv_create(&server->env.kv_limits, seed, on_reply, server);
    if (server->kv == NULL)
        return ddpi_error_nomem(err, sizeof(void *));
    return ddpi_kv_set_scope(server->kv, ddpi_bytes_of(tcpstore_prefix, strlen(tcpstore_prefix)),
                             err);
}

ddp_status ddpi_server_create(uv_loop_t *loop, const struct ddpi_server_options *options,
                              struct ddpi_server **ret, struct ddp_error *err)
{
    struct ddpi_server *server = ddpi_calloc(1, sizeof(*server));
    if (server == NULL)
        return ddpi_error_nomem(err, sizeof(*server));
    take_options(server, options);
    init_env(server, loop);
    ddpi_list_init(&server->conns);
    ddpi_list_init(&server->dirty);
    server->expiry_at = UINT64_MAX;
    const char *prefix = options->tcpstore_prefix != NULL ? options->tcpstore_prefix : "tcp/";
    ddp_status status = create_core(server, prefix, err);
    if (status != DDP_OK)
        goto fail_core;
    const char *host = options->host != NULL ? options->host : "127.0.0.1";
    status = ddpi_listen(host, options->port, &server->listen_fd, &server->port, server->endpoint,
                         sizeof server->endpoint, err);
    if (status != DDP_OK)
        goto fail_core;
    server->reserve_fd = open_reserve();
    int uv_err = start_handles(server);
    if (uv_err != 0) {
        status = ddpi_uv_error(err, uv_err, "cannot watch the listening socket");
        goto fail_listen;
    }
    *ret = server;
    return DDP_OK;

fail_listen:
    if (server->handles > 0) {
        ddpi_server_close(server, NULL, NULL);
        return status;
    }
    close(server->listen_fd);
    if (server->reserve_fd >= 0)
        close(server->reserve_fd);
fail_core:
    ddpi_kv_destroy(server->kv);
    ddpi_free(server);
    return status;
}

/* --- for the owner --- */

const char *ddpi_server_endpoint(const struct ddpi_server *server)
{
    return server->endpoint;
}

uint16_t ddpi_server_port(const struct ddpi_server *server)
{
    return server->port;
}

size_t ddpi_server_delete_prefix(struct ddpi_server *server, const char *prefix)
{
    return ddpi_kv_delete_prefix(server->kv, ddpi_bytes_of(prefix, strlen(prefix)));
}

ddp_status ddpi_server_set_tcpstore_prefix(struct ddpi_server *server, const char *prefix,
                                           struct ddp_error *err)
{
    ddp_status status = ddpi_kv_set_scope(server->kv, ddpi_bytes_of(prefix, strlen(prefix)), err);
    if (status != DDP_OK)
        return status;
    ddpi_list_for_each (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        if (conn->client.scoped)
            ddpi_conn_dismiss(conn, DDP_E_CLOSED, "the generation it belongs to has ended");
    }
    settle(server);
    return DDP_OK;
}

struct ddpi_server_stats ddpi_server_stats(const struct ddpi_server *server)
{
    struct ddpi_kv_stats kv = ddpi_kv_stats(server->kv);
    return (struct ddpi_server_stats){.accepted = server->accepted,
                                      .refused = server->refused,
                                      .requests = server->requests,
                                      .connections = server->connections,
                                      .keys = kv.keys,
                                      .bytes = kv.bytes,
                                      .waits = kv.waits};
}
