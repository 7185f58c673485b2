/*
 * server.c - creates, configures and closes a server: listeners, connections, core and rounds. Owns
 * all of them.
 *
 * The happy path: a listener accepts a connection, whose requests go to the core; the core's
 * replies go to the connections; each turn of the loop ends in ddpi_server_settle(), which sends
 * them.
 *
 * Possible failure modes are those of listener.c and the connections, and:
 *   - too many connections: the newest is refused;
 *   - changes cannot be made durable: all connections are closed without a reply.
 */
#include "server.h"
#include "error.h"
#include "mem.h"
#include "server_impl.h"
#include "token_file.h"

#include <ddprun/store.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

enum {
    MAX_CONNECTIONS = 65536,
    RESERVE_OF_SESSION = 1024, /* bytes: the reserve of 64 MiB is one for 65,536 nodes */
    MAX_HALF_OPEN = 4096,
    CONNECTION_RATE = 20,    /* failed connections of one address per second */
    CONNECTION_BURST_S = 10, /* a burst may use up what this many seconds allow */
    CONNECTION_RATE_MAX = 1000000,
    BUSY_POLL_US = 100,
    TURN_WORK = 4096, /* entries: about 2 ms */
    MAX_DATA_PORTS = 256,
    OTHER_FILES = 32, /* descriptors that the process needs besides connections */
    TCPSTORE_KEY_MAX = 1024 * 1024,
};

/* ---- closing ---- */

static void server_maybe_closed(struct ddpi_server *server)
{
    if (server->turn.handles > 0 || server->listeners.open > 0 || server->admission.connections > 0)
        return;
    const struct server_callback closed = server->closed;
    ddpi_round_keys_destroy(server->rounds);
    ddpi_kv_scope_put(server->kv, server->jobs.tcpstore_scope);
    ddpi_free(server->keeper_status);
    ddpi_kv_destroy(server->kv);
    ddpi_vouch_finish(&server->admission.vouching);
    ddpi_failure_rate_finish(&server->admission.failures);
    ddpi_owners_finish(&server->admission.owners);
    ddpi_tls_engine_destroy(server->shared.tls);
    ddpi_wipe(&server->token, sizeof server->token);
    ddpi_free(server);
    if (closed.call != NULL)
        closed.call(closed.ctx);
}

static void on_turn_handle_closed(uv_handle_t *handle)
{
    struct ddpi_server *server = handle->data;
    server->turn.handles--;
    server_maybe_closed(server);
}

const char *ddpi_server_other_job(const struct ddpi_server *server, const char *job)
{
    return ddpi_round_keys_other(server->rounds, job);
}

void ddpi_server_when_idle(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->idle = (struct server_callback){cb, ctx};
    ddpi_server_turn_again(server);
}

void ddpi_server_drain(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->draining = true;
    server->drained = (struct server_callback){cb, ctx};
    ddpi_listeners_close_all(&server->listeners);
}

void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->closed = (struct server_callback){cb, ctx};
    server->turn.sink_failed = NULL;
    ddpi_server_commit(server);
    bool may_answer = ddpi_server_may_answer_all(server);
    server->closing = true;
    ddpi_refusals_flush(&server->refusals);
    ddpi_list_for_each_safe (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        if (may_answer)
            ddpi_stream_free_all(&conn->stream);
        ddpi_conn_close(conn, DDP_E_CLOSED, "the server is shutting down");
    }
    ddpi_listeners_close_all(&server->listeners);
    ddpi_server_turn_close(server, on_turn_handle_closed);
}

static void on_conn_gone(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    ddpi_server_left(server, conn);
    if (conn->stream.peer == DDPI_PEER_ENDED)
        ddpi_kv_client_dead(server->kv, &conn->client);
    ddpi_kv_client_gone(server->kv, &conn->client);
    ddpi_kv_scope_put(server->kv, conn->client.scope);
    conn->client.scope = NULL;
}

static void on_conn_closed(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    ddpi_server_not_half_open(server, conn);
    ddpi_list_remove(&conn->of_server);
    ddpi_list_remove(&conn->of_dirty);
    ddpi_list_remove(&conn->of_held);
    server->admission.connections--;
    ddpi_free(conn);
    server_maybe_closed(server);
}

static void on_settle(void *owner)
{
    ddpi_server_settle(owner);
}

static void on_listener_closed(void *owner)
{
    struct ddpi_server *server = owner;
    server->listeners.open--;
    server_maybe_closed(server);
}

/* ---- listening ---- */

ddp_status ddpi_server_listen(struct ddpi_server *server, const char *host, uint16_t port,
                              const char *job, struct ddp_error *err)
{
    struct ddpi_listen_at at = {.host = host, .port = port};
    size_t len = job != NULL ? strlen(job) : 0;
    if (len > 0 && !ddpi_job_valid(job, len))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' cannot be the name of a job", job);
    if (len > 0)
        memcpy(at.job, job, len);
    return ddpi_listeners_add(&server->listeners, &at, NULL, err);
}

ddp_status ddpi_server_adopt(struct ddpi_server *server, int fd, struct ddp_error *err)
{
    return ddpi_listeners_adopt(&server->listeners, fd, err);
}

uint64_t ddpi_server_number(const struct ddpi_server *server)
{
    return server->env.incarnation;
}

const char *ddpi_server_endpoint_at(const struct ddpi_server *server, size_t index)
{
    const struct ddpi_listener *listener = ddpi_listeners_at(&server->listeners, index);
    return listener != NULL ? listener->endpoint : NULL;
}

const char *ddpi_server_job_at(const struct ddpi_server *server, size_t index)
{
    const struct ddpi_listener *listener = ddpi_listeners_at(&server->listeners, index);
    return listener != NULL ? listener->job : "";
}

const char *ddpi_server_endpoint(const struct ddpi_server *server)
{
    return ddpi_server_endpoint_at(server, 0);
}

uint16_t ddpi_server_port(const struct ddpi_server *server)
{
    const struct ddpi_listener *listener = ddpi_listeners_at(&server->listeners, 0);
    return listener != NULL ? listener->port : 0;
}

/* ---- creation ---- */

static void init_env(struct ddpi_server *server, uv_loop_t *loop)
{
    server->shared.loop = loop;
    server->env.log = &server->log;
    server->env.owner = server;
    server->env.admit = ddpi_server_on_admit;
    server->env.ahead = ddpi_server_on_ahead;
    server->env.fault = ddpi_server_on_fault;
    server->env.request = ddpi_server_on_request;
    server->env.settle = on_settle;
    server->env.dirty = ddpi_server_on_dirty;
    server->env.gone = on_conn_gone;
    server->env.closed = on_conn_closed;
    server->env.shared = &server->shared;
    server->refusals.loop = loop;
    server->refusals.log = &server->log;
    server->listeners.gate = &server->env.gate;
    server->listeners.env = (struct ddpi_listener_env){.loop = loop,
                                                       .log = &server->log,
                                                       .owner = server,
                                                       .connected = ddpi_server_on_connected,
                                                       .shed = ddpi_server_on_shed,
                                                       .closed = on_listener_closed};
}

#define OR_DEFAULT(value, standard) ((value) != 0 ? (value) : (standard))

static void take_lower(uint32_t *ret_limit, uint32_t wanted, uint32_t most)
{
    if (wanted != 0)
        *ret_limit = wanted < most ? wanted : most;
}

#define MIB ((size_t)1024 * 1024)

/* Limits on all connections together. */
static void take_common_options(struct ddpi_server *server,
                                const struct ddpi_server_options *options)
{
    struct rlimit files;
    server->admission.max_connections = OR_DEFAULT(options->max_connections, MAX_CONNECTIONS);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 2 * OTHER_FILES &&
        server->admission.max_connections > files.rlim_cur - OTHER_FILES)
        server->admission.max_connections = (uint32_t)(files.rlim_cur - OTHER_FILES);
    server->admission.max_half_open = OR_DEFAULT(options->max_half_open, MAX_HALF_OPEN);
    server->shared.input.limit = OR_DEFAULT(options->input_total, 512 * MIB);
    server->shared.output.limit = OR_DEFAULT(options->output_total, 1024 * MIB);
}

/* With one processor, polling would keep the clients from running. */
static uint64_t busy_poll_ns(uint32_t busy_poll_us)
{
    cpu_set_t cpus;
    if (busy_poll_us == DDPI_SERVER_NO_BUSY_POLL ||
        (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < 2))
        return 0;
    return (uint64_t)OR_DEFAULT(busy_poll_us, (uint32_t)BUSY_POLL_US) * 1000;
}

static void take_room(struct ddpi_kv_limits *kv, const struct ddpi_server_options *options)
{
    const size_t room[KV_ROOMS] = {options->max_keys, options->max_bytes, options->max_sessions};
    const size_t of_job[KV_ROOMS] = {options->max_job_keys, options->max_job_bytes,
                                     options->max_job_sessions};
    for (enum kv_room i = 0; i < KV_ROOMS; i++) {
        kv->room[i] = OR_DEFAULT(room[i], kv->room[i]);
        kv->of_job[i] = OR_DEFAULT(of_job[i], options->fair_shares ? 0 : kv->of_job[i]);
    }
    kv->turn_work = TURN_WORK;
    kv->reserve[KV_ROOM_BYTES] = OR_DEFAULT(options->reserve, kv->reserve[KV_ROOM_BYTES]);
    if (kv->reserve[KV_ROOM_BYTES] / RESERVE_OF_SESSION > kv->reserve[KV_ROOM_SESSIONS])
        kv->reserve[KV_ROOM_SESSIONS] = kv->reserve[KV_ROOM_BYTES] / RESERVE_OF_SESSION;
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
    take_room(kv, options);
    kv->waits_per_client = OR_DEFAULT(options->max_waits, kv->waits_per_client);
    kv->watches_per_client = OR_DEFAULT(options->max_watches, kv->watches_per_client);
    kv->history_changes = OR_DEFAULT(options->history_changes, kv->history_changes);
    kv->history_bytes = OR_DEFAULT(options->history_bytes, kv->history_bytes);
    kv->replay_bytes = server->env.limits.output_hard / 2; /* other replies may be queued, too */
    take_lower(&kv->keys_per_wait, options->max_keys_per_wait, kv->keys_per_wait);
    take_lower(&kv->key_len, options->max_key_len, kv->key_len);
    take_lower(&kv->value_len, options->max_value_len, kv->value_len);
    take_lower(&kv->tcpstore_key_len, options->tcpstore_max_key_len, TCPSTORE_KEY_MAX);
    take_lower(&kv->tcpstore_value_len, options->tcpstore_max_value_len, DDP_STORE_VALUE_MAX);
    take_lower(&kv->tcpstore_many, options->tcpstore_max_keys, kv->tcpstore_many);
    if (options->log != NULL)
        server->log = *options->log;
    server->env.gate = (struct ddpi_gate){
        .open_to_loopback = options->auth != DDPI_SERVER_AUTH_ALWAYS,
        .open_to_users = options->trust_local_users,
        .open_to_all = options->auth == DDPI_SERVER_AUTH_NEVER,
        .tcpstore_in_clear = options->tcpstore_in_clear,
        .random = ddpi_token_random,
    };
    server->turn.busy_poll.window_ns = busy_poll_ns(options->busy_poll_us);
    server->listeners.max_data_ports = OR_DEFAULT(options->max_data_ports, MAX_DATA_PORTS);
}

static ddp_status create_core(struct ddpi_server *server, uint32_t rate,
                              const char *tcpstore_prefix, struct ddp_error *err)
{
    uint8_t seed[DDPI_SEED_SIZE];
    uint64_t *incarnation = &server->env.incarnation;
    if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed ||
        getrandom(incarnation, sizeof *incarnation, 0) != (ssize_t)sizeof *incarnation)
        return ddpi_error_sys(err, errno, "cannot get random bytes");
    ddpi_vouch_init(&server->admission.vouching, seed);
    ddpi_failure_rate_init(&server->admission.failures, rate, rate * CONNECTION_BURST_S, seed);
    server->kv = ddpi_kv_create(&server->env.kv_limits, seed, ddpi_server_on_reply, server);
    if (server->kv == NULL)
        return ddpi_error_nomem(err, sizeof(void *));
    ddp_status status = ddpi_server_create_rounds(server, seed, err);
    if (status != DDP_OK)
        return status;
    return ddpi_kv_scope_get(server->kv, ddpi_bytes_of(tcpstore_prefix, strlen(tcpstore_prefix)),
                             &server->jobs.tcpstore_scope, err);
}

static ddp_status load_tls(struct ddpi_server *server, const struct ddpi_server_options *options,
                           struct ddp_error *err)
{
    if (options->tls && options->auth == DDPI_SERVER_AUTH_NEVER)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--tls needs the token, and --no-auth disables it; leave one out");
    ddp_status status = options->tls ? ddpi_tls_engine_create(&server->shared.tls, err) : DDP_OK;
    server->listeners.tls = server->shared.tls != NULL;
    return status;
}

ddp_status ddpi_server_create_unbound(uv_loop_t *loop, const struct ddpi_server_options *options,
                                      struct ddpi_server **ret, struct ddp_error *err)
{
    struct ddpi_server *server = ddpi_calloc(1, sizeof(*server));
    if (server == NULL)
        return ddpi_error_nomem(err, sizeof(*server));
    take_options(server, options);
    ddpi_owners_init(&server->admission.owners);
    server->admission.vouches = options->vouches;
    server->jobs.named_only = options->named_jobs_only;
    server->rounds_elsewhere = options->rounds_elsewhere;
    server->job_changed = options->job_changed;
    server->rounds_ctx = options->rounds_ctx;
    take_common_options(server, options);
    init_env(server, loop);
    ddpi_list_init(&server->listeners.all);
    ddpi_list_init(&server->conns);
    ddpi_list_init(&server->admission.half_open);
    ddpi_list_init(&server->requests.dirty);
    ddpi_list_init(&server->requests.withheld);
    ddpi_list_init(&server->requests.held);
    const char *prefix = options->tcpstore_prefix != NULL ? options->tcpstore_prefix : "tcp/";
    uint32_t rate = CONNECTION_RATE;
    take_lower(&rate, options->connection_rate, CONNECTION_RATE_MAX);
    ddp_status status = load_tls(server, options, err);
    if (status == DDP_OK && options->token != NULL)
        status = ddpi_server_set_token(server, options->token, err);
    if (status == DDP_OK)
        status = create_core(server, rate, prefix, err);
    if (status != DDP_OK) {
        ddpi_round_keys_destroy(server->rounds);
        ddpi_kv_destroy(server->kv);
        ddpi_tls_engine_destroy(server->shared.tls);
        ddpi_wipe(&server->token, sizeof server->token);
        ddpi_free(server);
        return status;
    }
    ddpi_kv_set_sink(server->kv, ddpi_server_on_change, server);
    ddpi_kv_reserve(server->kv, "epoch/");
    ddpi_server_turn_start(server);
    *ret = server;
    return DDP_OK;
}

ddp_status ddpi_server_create(uv_loop_t *loop, const struct ddpi_server_options *options,
                              struct ddpi_server **ret, struct ddp_error *err)
{
    struct ddpi_server *server;
    ddp_status status = ddpi_server_create_unbound(loop, options, &server, err);
    if (status != DDP_OK)
        return status;
    const char *host = options->host != NULL ? options->host : "127.0.0.1";
    status = ddpi_server_listen(server, host, options->port, NULL, err);
    if (status != DDP_OK)
        ddpi_server_close(server, NULL, NULL);
    else
        *ret = server;
    return status;
}

/* ---- for the owner ---- */

ddp_status ddpi_server_set_token(struct ddpi_server *server, const struct ddpi_credential *token,
                                 struct ddp_error *err)
{
    if (!token->is_token)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a server needs the token itself; this is the key of the role '%s'",
                              ddpi_role_name(token->identity.role));
    server->token = *token;
    server->env.gate.token = &server->token;
    return DDP_OK;
}

void ddpi_server_stand_by(struct ddpi_server *server, const char *leader, uint64_t number)
{
    server->standby.on = true;
    snprintf(server->standby.leader, sizeof server->standby.leader, "%s", leader);
    if (number != 0)
        server->env.incarnation = number;
}

ddp_status ddpi_server_set_keeper_status(struct ddpi_server *server, const char *text, size_t len,
                                         struct ddp_error *err)
{
    char *copy = ddpi_strndup(text, len);
    if (copy == NULL)
        return ddpi_error_nomem(err, len);
    ddpi_free(server->keeper_status);
    server->keeper_status = copy;
    server->keeper_status_len = len;
    server->keeper_status_ms = uv_now(server->shared.loop);
    ddpi_server_look_for_end(server); /* by the clock */
    return DDP_OK;
}

void ddpi_server_stand_in(struct ddpi_server *server)
{
    server->standby.on = false;
}

ddp_status ddpi_server_restore(struct ddpi_server *server, const struct ddpi_mutation *mutation,
                               struct ddp_error *err)
{
    return ddpi_kv_restore(server->kv, mutation, uv_now(server->shared.loop), err);
}

void ddpi_server_restore_mark(struct ddpi_server *server, const struct ddpi_mark *mark)
{
    uv_update_time(server->shared.loop); /* loading can take long */
    ddpi_kv_restore_mark(server->kv, mark, uv_now(server->shared.loop));
    server->env.incarnation = mark->incarnation;
    ddpi_round_keys_restore(server->rounds);
    server->reclaim.pending = true;
}

void ddpi_server_set_sink(struct ddpi_server *server, const struct ddpi_sink *sink,
                          void (*failed)(void *ctx, const struct ddp_error *why), void *ctx)
{
    server->turn.sink = *sink;
    server->turn.sink_failed = failed;
    server->turn.sink_failed_ctx = ctx;
}

ddp_status ddpi_server_show(struct ddpi_server *server, const char *key, const void *value,
                            size_t len, struct ddp_error *err)
{
    server->showing = true;
    ddp_status status =
        ddpi_kv_poke(server->kv, ddpi_bytes_of(key, strlen(key)), ddpi_bytes_of(value, len), err);
    server->showing = false;
    return status;
}

size_t ddpi_server_delete_prefix(struct ddpi_server *server, const char *prefix)
{
    return ddpi_kv_delete_prefix(server->kv, ddpi_bytes_of(prefix, strlen(prefix)));
}

void ddpi_server_detach(struct ddpi_server *server, const char *prefix)
{
    ddpi_kv_detach(server->kv, ddpi_bytes_of(prefix, strlen(prefix)));
}

ddp_status ddpi_server_set_tcpstore_prefix(struct ddpi_server *server, const char *prefix,
                                           struct ddp_error *err)
{
    struct ddpi_kv_scope *scope;
    ddp_status status =
        ddpi_kv_scope_get(server->kv, ddpi_bytes_of(prefix, strlen(prefix)), &scope, err);
    if (status != DDP_OK)
        return status;
    ddpi_kv_scope_put(server->kv, server->jobs.tcpstore_scope);
    server->jobs.tcpstore_scope = scope;
    ddpi_list_for_each (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        if (conn->client.tcpstore && conn->dialect_state.identity.job[0] == '\0')
            ddpi_conn_dismiss(conn, DDP_E_CLOSED, "the generation of this client has ended");
    }
    return DDP_OK;
}

void ddpi_server_set_tcpstore_job(struct ddpi_server *server, const char *job)
{
    snprintf(server->jobs.tcpstore_job, sizeof server->jobs.tcpstore_job, "%s", job);
}
