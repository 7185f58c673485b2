/*
 * server.c - listeners, connections and core, put together. Owns all three, and the timer for the
 * core's deadlines.
 *
 * The happy path: a connection comes in, its requests go to the core, the core's replies to the
 * connections they belong to; each turn of the loop ends in settle(), which flushes what was
 * written to and sets the timer.
 *
 * Possible failure modes are those of listener.c and conn.c, and:
 *   - too many connections: the newest is told so and closed;
 *   - what has changed cannot be made durable: nothing is answered any more.
 */
#include "server.h"

#include "admission.h"
#include "conn.h"
#include "error.h"
#include "listen.h"
#include "mem.h"
#include "proto.h"
#include "roles.h"
#include "token.h"

#include <ddprun/store.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_CONNECTIONS = 65536,
    OTHER_FILES = 32, /* what the process needs besides connections, at least */
    SCRATCH_SIZE = 32 * 1024,
    TCPSTORE_KEY_MAX = 1024 * 1024,
    DENIALS_LOGGED = 10, /* in so many milliseconds; the others are counted: */
    DENIALS_MS = 10000,
};

struct ddpi_server {
    struct ddpi_conn_env env;
    struct ddpi_listener_env listener_env;
    struct ddpi_kv *kv;
    struct ddpi_kv_scope *tcpstore_scope;
    struct ddpi_list listeners; /* ddpi_listener::of_server */
    struct ddpi_list conns;     /* ddpi_conn::of_server */
    struct ddpi_list dirty;     /* ddpi_conn::of_dirty */
    struct ddpi_log log;
    uint32_t max_connections;
    struct ddpi_credential token; /* env.gate points here where there is one */
    struct ddpi_admission admission;
    struct denials {
        uint64_t since_ms;
        unsigned logged;
        unsigned unlogged;
    } denials;
    struct ddpi_server_stats counts; /* without what the core knows */

    struct ddpi_sink sink; /* commit NULL: none */
    void (*sink_failed)(void *ctx, const struct ddp_error *why);
    void *sink_failed_ctx;
    bool changed; /* since the last commit */

    uv_timer_t expiry; /* the core's next deadline */
    uint64_t expiry_at;
    uv_check_t after_io; /* these two end a turn: behind connections, and behind timers */
    uv_prepare_t before_io;
    unsigned handles; /* not closed yet: these three, and each listener */
    bool closing;
    void (*drained_cb)(void *ctx); /* NULL: not draining, or it has been called */
    void *drained_ctx;
    void (*close_cb)(void *ctx);
    void *close_ctx;

    char scratch[SCRATCH_SIZE];
};

/* --- end --- */

static void server_maybe_closed(struct ddpi_server *server)
{
    if (server->handles > 0 || server->counts.connections > 0)
        return;
    void (*cb)(void *ctx) = server->close_cb;
    void *ctx = server->close_ctx;
    ddpi_kv_scope_put(server->kv, server->tcpstore_scope);
    ddpi_kv_destroy(server->kv);
    ddpi_admission_finish(&server->admission);
    ddpi_wipe(&server->token, sizeof server->token);
    ddpi_free(server);
    if (cb != NULL)
        cb(ctx);
}

static void handle_closed(void *owner)
{
    struct ddpi_server *server = owner;
    server->handles--;
    server_maybe_closed(server);
}

static void on_handle_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

static void stop_listening(struct ddpi_server *server)
{
    ddpi_list_for_each_safe (node, &server->listeners)
        ddpi_listener_close(ddpi_container_of(node, struct ddpi_listener, of_server));
}

/* --- requests and replies --- */

static void on_expiry(uv_timer_t *timer)
{
    struct ddpi_server *server = timer->data;
    server->expiry_at = UINT64_MAX;
    ddpi_kv_expire(server->kv, uv_now(server->env.loop));
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

static bool has_unsent_replies(const struct ddpi_server *server)
{
    ddpi_list_for_each (node, &server->conns)
        if (ddpi_conn_queued(ddpi_container_of(node, struct ddpi_conn, of_server)) > 0)
            return true;
    return false;
}

static void tell_if_drained(struct ddpi_server *server)
{
    if (server->drained_cb == NULL || ddpi_kv_stats(server->kv).waits > 0 ||
        has_unsent_replies(server))
        return;
    void (*cb)(void *ctx) = server->drained_cb;
    server->drained_cb = NULL;
    cb(server->drained_ctx);
}

static void on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    struct ddpi_server *server = ctx;
    server->changed = true;
    server->sink.change(server->sink.ctx, mutation);
}

/* What clients have not been told has not happened for them, and will not have when the store
 * starts again with what its sink holds. */
static void abandon(struct ddpi_server *server, const struct ddp_error *why)
{
    server->closing = true;
    ddpi_kv_set_sink(server->kv, NULL, NULL);
    ddpi_list_for_each_safe (node, &server->conns)
        ddpi_conn_drop(ddpi_container_of(node, struct ddpi_conn, of_server), why->msg);
}

static ddp_status commit(struct ddpi_server *server, struct ddp_error *err)
{
    if (!server->changed)
        return DDP_OK;
    const struct ddpi_mark mark = ddpi_kv_mark(server->kv);
    server->changed = false;
    ddp_status status = server->sink.commit(server->sink.ctx, &mark, err);
    if (status != DDP_OK)
        abandon(server, err);
    return status;
}

static void settle(void *owner)
{
    struct ddpi_server *server = owner;
    struct ddp_error why = {0};
    if (server->closing)
        return;
    if (commit(server, &why) != DDP_OK) {
        server->sink_failed(server->sink_failed_ctx, &why);
        return;
    }
    while (!ddpi_list_empty(&server->dirty)) {
        struct ddpi_list *node = server->dirty.next;
        ddpi_list_remove(node);
        ddpi_conn_flush(ddpi_container_of(node, struct ddpi_conn, of_dirty));
    }
    update_expiry(server);
    tell_if_drained(server);
}

static void on_after_io(uv_check_t *check)
{
    settle(check->data);
}

static void on_before_io(uv_prepare_t *prepare)
{
    settle(prepare->data);
}

void ddpi_server_drain(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->drained_cb = cb;
    server->drained_ctx = ctx;
    stop_listening(server);
}

void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->close_cb = cb;
    server->close_ctx = ctx;
    struct ddp_error why = {0};
    if (commit(server, &why) != DDP_OK)
        ddpi_log(&server->log, DDPI_LOG_ERROR, "%s", why.msg);
    server->closing = true;
    ddpi_list_for_each_safe (node, &server->conns)
        ddpi_conn_close(ddpi_container_of(node, struct ddpi_conn, of_server), DDP_E_CLOSED,
                        "the server is shutting down");
    stop_listening(server);
    uv_close((uv_handle_t *)&server->expiry, on_handle_closed);
    uv_close((uv_handle_t *)&server->after_io, on_handle_closed);
    uv_close((uv_handle_t *)&server->before_io, on_handle_closed);
}

/* A line for each of DDPI_SERVER_STATS: its name, a blank, the number. */
static void answer_stats(struct ddpi_server *server, struct ddpi_conn *conn, uint64_t id)
{
    char text[1024];
    struct ddpi_server_stats stats = ddpi_server_stats(server);
    int len = snprintf(text, sizeof text,
#define FORMAT(name) #name " %" PRIu64 "\n"
                       DDPI_SERVER_STATS(FORMAT)
#undef FORMAT
#define VALUE(name) , stats.name
                           DDPI_SERVER_STATS(VALUE)
#undef VALUE
    );
    const struct ddpi_message reply = {
        .op = DDPI_OP_STATS, .id = id, .value = ddpi_bytes_of(text, (size_t)len)};
    ddpi_conn_reply(conn, &reply);
}

static void on_ahead(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys,
                     size_t count)
{
    const struct ddpi_server *server = owner;
    ddpi_kv_prefetch(server->kv, &conn->client, keys, count);
}

static void refuse_request(struct ddpi_conn *conn, const struct ddpi_message *request,
                           const struct ddp_error *why)
{
    const struct ddpi_message reply = {.op = request->op,
                                       .id = request->id,
                                       .status = why->status,
                                       .text = ddpi_bytes_of(why->msg, strlen(why->msg))};
    ddpi_conn_reply(conn, &reply);
}

static void on_request(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request)
{
    struct ddpi_server *server = owner;
    struct ddp_error err;
    server->counts.requests++;
    if (ddpi_role_permits(&conn->session.identity, request, &err) != DDP_OK)
        refuse_request(conn, request, &err);
    else if (request->op == DDPI_OP_STATS)
        answer_stats(server, conn, request->id);
    else
        ddpi_kv_apply(server->kv, &conn->client, request, uv_now(server->env.loop));
}

static void on_reply(void *ctx, struct ddpi_kv_client *client, const struct ddpi_message *reply)
{
    struct ddpi_server *server = ctx;
    if (reply->status == DDP_E_LIMIT) {
        server->counts.limited++;
        ddpi_log(&server->log, DDPI_LOG_WARN, "refused a %s: %.*s", ddpi_op_name(reply->op),
                 (int)reply->text.len, (const char *)reply->text.data);
    }
    ddpi_conn_reply(ddpi_container_of(client, struct ddpi_conn, client), reply);
}

static void on_dirty(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    if (ddpi_list_empty(&conn->of_dirty))
        ddpi_list_append(&server->dirty, &conn->of_dirty);
}

static ddp_status admit_tcpstore(struct ddpi_server *server, struct ddpi_conn *conn,
                                 struct ddp_error *err)
{
    if (conn->session.must_prove && !ddpi_admission_vouched(&server->admission, &conn->address))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a TCPStore client cannot prove who it is, and no agent that has the "
                              "token is connected from its host");
    return ddpi_kv_scope_get(server->kv, ddpi_kv_scope_prefix(server->tcpstore_scope),
                             &conn->client.scope, err);
}

static ddp_status on_admit(void *owner, struct ddpi_conn *conn, struct ddp_error *err)
{
    struct ddpi_server *server = owner;
    const struct ddpi_identity *who = &conn->session.identity;
    if (conn->client.tcpstore)
        return admit_tcpstore(server, conn, err);
    if (who->proven && who->role == DDPI_ROLE_AGENT) {
        if (!ddpi_admission_enter(&server->admission, &conn->address))
            return ddpi_error_nomem(err, sizeof conn->address);
        conn->vouches = true;
    }
    return DDP_OK;
}

/* Whoever can connect could fill the log otherwise. */
static bool on_denied(void *owner)
{
    struct ddpi_server *server = owner;
    struct denials *denials = &server->denials;
    uint64_t now_ms = uv_now(server->env.loop);
    server->counts.denied++;
    if (denials->logged == 0 || now_ms - denials->since_ms >= DENIALS_MS) {
        if (denials->unlogged > 0)
            ddpi_log(&server->log, DDPI_LOG_WARN, "denied %u more connections", denials->unlogged);
        *denials = (struct denials){.since_ms = now_ms};
    }
    bool room = denials->logged < DENIALS_LOGGED;
    denials->logged += room;
    denials->unlogged += !room;
    return room;
}

static void on_gone(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    server->counts.dismissed += conn->at_fault && !conn->denied;
    if (conn->vouches)
        ddpi_admission_leave(&server->admission, &conn->address);
    ddpi_kv_client_gone(server->kv, &conn->client);
    ddpi_kv_scope_put(server->kv, conn->client.scope);
    conn->client.scope = NULL;
}

static void on_conn_closed(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    ddpi_list_remove(&conn->of_server);
    ddpi_list_remove(&conn->of_dirty);
    server->counts.connections--;
    ddpi_free(conn);
    server_maybe_closed(server);
}

/* --- connections --- */

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
    server->counts.refused++;
    ddpi_log(&server->log, DDPI_LOG_WARN,
             "refused a connection: there are %" PRIu64 ", which is the limit",
             server->counts.connections);
}

static void on_connected(void *owner, int fd)
{
    struct ddpi_server *server = owner;
    if (server->counts.connections >= server->max_connections) {
        refuse(server, fd);
        return;
    }
    struct ddp_error err;
    struct ddpi_conn *conn = NULL;
    ddp_status status = ddpi_conn_create(&server->env, fd, &conn, &err);
    if (conn != NULL) {
        ddpi_list_append(&server->conns, &conn->of_server);
        server->counts.connections++;
    }
    if (status == DDP_OK) {
        server->counts.accepted++;
        return;
    }
    server->counts.refused++;
    ddpi_log(&server->log, DDPI_LOG_WARN, "lost a connection: %s", err.msg);
    if (conn != NULL)
        ddpi_conn_close(conn, status, err.msg);
}

static void on_shed(void *owner)
{
    struct ddpi_server *server = owner;
    server->counts.refused++;
}

/* --- listening --- */

/* Takes over @fd. */
static ddp_status add_listener(struct ddpi_server *server, int fd, struct ddp_error *err)
{
    struct ddpi_listener *listener;
    ddp_status status = ddpi_listener_create(&server->listener_env, fd, &listener, err);
    if (status != DDP_OK)
        return status;
    ddpi_list_append(&server->listeners, &listener->of_server);
    server->handles++;
    return DDP_OK;
}

/* Without a token there are addresses where nobody could be admitted, or everybody would be. */
static ddp_status check_token(const struct ddpi_server *server, bool *ret_loopback_only,
                              struct ddp_error *err)
{
    const struct ddpi_gate *gate = &server->env.gate;
    *ret_loopback_only = gate->token == NULL && !gate->open_to_all;
    if (*ret_loopback_only && !gate->open_to_loopback)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "all clients have to prove who they are, but there is no token");
    return DDP_OK;
}

ddp_status ddpi_server_listen(struct ddpi_server *server, const char *host, uint16_t port,
                              struct ddp_error *err)
{
    int fd;
    bool loopback_only;
    ddp_status status = check_token(server, &loopback_only, err);
    if (status == DDP_OK)
        status = ddpi_listen(host, port, loopback_only, &fd, err);
    return status == DDP_OK ? add_listener(server, fd, err) : status;
}

ddp_status ddpi_server_adopt(struct ddpi_server *server, int fd, struct ddp_error *err)
{
    bool loopback_only;
    ddp_status status = check_token(server, &loopback_only, err);
    if (status == DDP_OK)
        status = ddpi_listen_check(fd, loopback_only, err);
    return status == DDP_OK ? add_listener(server, fd, err) : status;
}

static const struct ddpi_listener *listener_at(const struct ddpi_server *server, size_t index)
{
    ddpi_list_for_each (node, &server->listeners)
        if (index-- == 0)
            return ddpi_container_of(node, struct ddpi_listener, of_server);
    return NULL;
}

const char *ddpi_server_endpoint_at(const struct ddpi_server *server, size_t index)
{
    const struct ddpi_listener *listener = listener_at(server, index);
    return listener != NULL ? listener->endpoint : NULL;
}

const char *ddpi_server_endpoint(const struct ddpi_server *server)
{
    return ddpi_server_endpoint_at(server, 0);
}

uint16_t ddpi_server_port(const struct ddpi_server *server)
{
    const struct ddpi_listener *listener = listener_at(server, 0);
    return listener != NULL ? listener->port : 0;
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
    kv->waits_per_client = OR_DEFAULT(options->max_waits, kv->waits_per_client);
    take_lower(&kv->value_len, options->max_value_len, kv->value_len);
    take_lower(&kv->tcpstore_key_len, options->tcpstore_max_key_len, TCPSTORE_KEY_MAX);
    take_lower(&kv->tcpstore_value_len, options->tcpstore_max_value_len, DDP_STORE_VALUE_MAX);
    take_lower(&kv->tcpstore_many, options->tcpstore_max_keys, kv->tcpstore_many);
    if (options->log != NULL)
        server->log = *options->log;
    server->env.gate = (struct ddpi_gate){
        .open_to_loopback = options->auth != DDPI_SERVER_AUTH_ALWAYS,
        .open_to_all = options->auth == DDPI_SERVER_AUTH_NEVER,
        .random = ddpi_token_random,
    };
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
    server->env.admit = on_admit;
    server->env.ahead = on_ahead;
    server->env.denied = on_denied;
    server->env.request = on_request;
    server->env.settle = settle;
    server->env.dirty = on_dirty;
    server->env.gone = on_gone;
    server->env.closed = on_conn_closed;
    server->env.scratch = server->scratch;
    server->env.scratch_size = sizeof server->scratch;
    server->listener_env = (struct ddpi_listener_env){.loop = loop,
                                                      .log = &server->log,
                                                      .owner = server,
                                                      .connected = on_connected,
                                                      .shed = on_shed,
                                                      .closed = handle_closed};
}

static ddp_status create_core(struct ddpi_server *server, const char *tcpstore_prefix,
                              struct ddp_error *err)
{
    uint8_t seed[DDPI_SEED_SIZE];
    uint64_t *incarnation = &server->env.incarnation;
    if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed ||
        getrandom(incarnation, sizeof *incarnation, 0) != (ssize_t)sizeof *incarnation)
        return ddpi_error_sys(err, errno, "cannot get random bytes");
    ddpi_admission_init(&server->admission, seed);
    server->kv = ddpi_kv_create(&server->env.kv_limits, seed, on_reply, server);
    if (server->kv == NULL)
        return ddpi_error_nomem(err, sizeof(void *));
    return ddpi_kv_scope_get(server->kv, ddpi_bytes_of(tcpstore_prefix, strlen(tcpstore_prefix)),
                             &server->tcpstore_scope, err);
}

/* None of these calls can fail. */
static void init_handles(struct ddpi_server *server)
{
    uv_timer_init(server->env.loop, &server->expiry);
    uv_check_init(server->env.loop, &server->after_io);
    uv_prepare_init(server->env.loop, &server->before_io);
    server->expiry.data = server->after_io.data = server->before_io.data = server;
    server->handles = 3;
    uv_check_start(&server->after_io, on_after_io);
    uv_prepare_start(&server->before_io, on_before_io);
}

ddp_status ddpi_server_create_deaf(uv_loop_t *loop, const struct ddpi_server_options *options,
                                   struct ddpi_server **ret, struct ddp_error *err)
{
    struct ddpi_server *server = ddpi_calloc(1, sizeof(*server));
    if (server == NULL)
        return ddpi_error_nomem(err, sizeof(*server));
    take_options(server, options);
    init_env(server, loop);
    ddpi_list_init(&server->listeners);
    ddpi_list_init(&server->conns);
    ddpi_list_init(&server->dirty);
    server->expiry_at = UINT64_MAX;
    const char *prefix = options->tcpstore_prefix != NULL ? options->tcpstore_prefix : "tcp/";
    ddp_status status = DDP_OK;
    if (options->token != NULL)
        status = ddpi_server_set_token(server, options->token, err);
    if (status == DDP_OK)
        status = create_core(server, prefix, err);
    if (status != DDP_OK) {
        ddpi_kv_destroy(server->kv);
        ddpi_wipe(&server->token, sizeof server->token);
        ddpi_free(server);
        return status;
    }
    init_handles(server);
    *ret = server;
    return DDP_OK;
}

ddp_status ddpi_server_create(uv_loop_t *loop, const struct ddpi_server_options *options,
                              struct ddpi_server **ret, struct ddp_error *err)
{
    struct ddpi_server *server;
    ddp_status status = ddpi_server_create_deaf(loop, options, &server, err);
    if (status != DDP_OK)
        return status;
    const char *host = options->host != NULL ? options->host : "127.0.0.1";
    status = ddpi_server_listen(server, host, options->port, err);
    if (status != DDP_OK)
        ddpi_server_close(server, NULL, NULL);
    else
        *ret = server;
    return status;
}

/* --- for the owner --- */

ddp_status ddpi_server_set_token(struct ddpi_server *server, const struct ddpi_credential *token,
                                 struct ddp_error *err)
{
    if (!token->is_token)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a server needs the token itself; this is the key of the role '%s' "
                              "only",
                              ddpi_role_name(token->identity.role));
    server->token = *token;
    server->env.gate.token = &server->token;
    return DDP_OK;
}

ddp_status ddpi_server_restore(struct ddpi_server *server, const struct ddpi_mutation *mutation,
                               struct ddp_error *err)
{
    return ddpi_kv_restore(server->kv, mutation, uv_now(server->env.loop), err);
}

void ddpi_server_restore_mark(struct ddpi_server *server, const struct ddpi_mark *mark)
{
    ddpi_kv_restore_mark(server->kv, mark);
}

void ddpi_server_set_sink(struct ddpi_server *server, const struct ddpi_sink *sink,
                          void (*failed)(void *ctx, const struct ddp_error *why), void *ctx)
{
    server->sink = *sink;
    server->sink_failed = failed;
    server->sink_failed_ctx = ctx;
    ddpi_kv_set_sink(server->kv, on_change, server);
}

size_t ddpi_server_delete_prefix(struct ddpi_server *server, const char *prefix)
{
    return ddpi_kv_delete_prefix(server->kv, ddpi_bytes_of(prefix, strlen(prefix)));
}

ddp_status ddpi_server_set_tcpstore_prefix(struct ddpi_server *server, const char *prefix,
                                           struct ddp_error *err)
{
    struct ddpi_kv_scope *scope;
    ddp_status status =
        ddpi_kv_scope_get(server->kv, ddpi_bytes_of(prefix, strlen(prefix)), &scope, err);
    if (status != DDP_OK)
        return status;
    ddpi_kv_scope_put(server->kv, server->tcpstore_scope);
    server->tcpstore_scope = scope;
    ddpi_list_for_each (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        if (conn->client.tcpstore)
            ddpi_conn_dismiss(conn, DDP_E_CLOSED, "the generation it belongs to has ended");
    }
    return DDP_OK;
}

struct ddpi_server_stats ddpi_server_stats(const struct ddpi_server *server)
{
    struct ddpi_server_stats stats = server->counts;
    struct ddpi_kv_stats kv = ddpi_kv_stats(server->kv);
    stats.keys = kv.keys;
    stats.bytes = kv.bytes;
    stats.waits = kv.waits;
    stats.watches = kv.watches;
    stats.sessions = kv.sessions;
    return stats;
}
