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
#include "error.h"
#include "listen.h"
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
    MAX_HALF_OPEN = 4096,
    CONNECTION_RATE = 20, /* a second; and as many at once as in this time: */
    CONNECTION_BURST_S = 10,
    CONNECTION_RATE_MAX = 1000000,
    BUSY_POLL_US = 100,
    TURN_WORK = 4096, /* entries: about 2 ms */
    MAX_DATA_PORTS = 256,
    OTHER_FILES = 32, /* what the process needs besides connections, at least */
    TCPSTORE_KEY_MAX = 1024 * 1024,
};

/* --- end --- */

void ddpi_server_maybe_closed(struct ddpi_server *server)
{
    if (server->handles > 0 || server->counts.connections > 0)
        return;
    void (*cb)(void *ctx) = server->close_cb;
    void *ctx = server->close_ctx;
    ddpi_round_keys_destroy(server->rounds);
    ddpi_kv_scope_put(server->kv, server->tcpstore_scope);
    ddpi_kv_destroy(server->kv);
    ddpi_admission_finish(&server->admission);
    ddpi_rate_finish(&server->rate);
    ddpi_owners_finish(&server->owners);
    ddpi_tls_engine_destroy(server->tls);
    ddpi_wipe(&server->token, sizeof server->token);
    ddpi_free(server);
    if (cb != NULL)
        cb(ctx);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ddpi_server *server = handle->data;
    server->handles--;
    ddpi_server_maybe_closed(server);
}

static void stop_listening(struct ddpi_server *server)
{
    ddpi_list_for_each_safe (node, &server->listeners)
        ddpi_listener_close(ddpi_container_of(node, struct ddpi_listener, of_server));
}

void ddpi_server_drain(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->draining = true;
    server->drained_cb = cb;
    server->drained_ctx = ctx;
    stop_listening(server);
}

void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->close_cb = cb;
    server->close_ctx = ctx;
    struct ddp_error why = {0};
    if (ddpi_server_commit(server, &why) != DDP_OK)
        ddpi_log(&server->log, DDPI_LOG_ERROR, "%s", why.msg);
    server->closing = true;
    ddpi_server_log_refusals(server);
    ddpi_list_for_each_safe (node, &server->conns)
        ddpi_conn_close(ddpi_container_of(node, struct ddpi_conn, of_server), DDP_E_CLOSED,
                        "the server is shutting down");
    stop_listening(server);
    uv_close((uv_handle_t *)&server->expiry, on_handle_closed);
    uv_close((uv_handle_t *)&server->after_io, on_handle_closed);
    uv_close((uv_handle_t *)&server->before_io, on_handle_closed);
    uv_close((uv_handle_t *)&server->no_sleep, on_handle_closed);
}

/* --- listening --- */

/* Takes over @fd. */
static ddp_status take_socket(struct ddpi_server *server, int fd, struct ddpi_listener **ret,
                              struct ddp_error *err)
{
    ddp_status status = ddpi_listener_create(&server->listener_env, fd, ret, err);
    if (status != DDP_OK)
        return status;
    ddpi_list_append(&server->listeners, &(*ret)->of_server);
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
    if (*ret_loopback_only && server->tls != NULL)
        return ddpi_error_set(err, DDP_E_DENIED, "TLS takes a token, but there is none");
    return DDP_OK;
}

ddp_status ddpi_server_add_listener(struct ddpi_server *server, const struct ddpi_listen_at *at,
                                    const struct ddpi_listener **ret, struct ddp_error *err)
{
    int fd;
    bool loopback_only;
    struct ddpi_listener *listener;
    ddp_status status = check_token(server, &loopback_only, err);
    if (status == DDP_OK)
        status = ddpi_listen(at->host, at->port, loopback_only, &fd, err);
    if (status == DDP_OK)
        status = take_socket(server, fd, &listener, err);
    if (status != DDP_OK)
        return status;
    memcpy(listener->job, at->job, sizeof listener->job);
    listener->session = at->session;
    listener->generation = at->generation;
    if (ret != NULL)
        *ret = listener;
    return DDP_OK;
}

ddp_status ddpi_server_listen(struct ddpi_server *server, const char *host, uint16_t port,
                              const char *job, struct ddp_error *err)
{
    struct ddpi_listen_at at = {.host = host, .port = port};
    size_t len = job != NULL ? strlen(job) : 0;
    if (len > 0 && !ddpi_job_valid(job, len))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' cannot be the name of a job", job);
    if (len > 0)
        memcpy(at.job, job, len);
    return ddpi_server_add_listener(server, &at, NULL, err);
}

ddp_status ddpi_server_adopt(struct ddpi_server *server, int fd, struct ddp_error *err)
{
    bool loopback_only;
    struct ddpi_listener *listener;
    ddp_status status = check_token(server, &loopback_only, err);
    if (status == DDP_OK)
        status = ddpi_listen_check(fd, loopback_only, err);
    return status == DDP_OK ? take_socket(server, fd, &listener, err) : status;
}

uint64_t ddpi_server_number(const struct ddpi_server *server)
{
    return server->env.incarnation;
}

/* Of those that the owner has asked for: clients open and close theirs at any time. */
static const struct ddpi_listener *listener_at(const struct ddpi_server *server, size_t index)
{
    ddpi_list_for_each (node, &server->listeners) {
        const struct ddpi_listener *listener =
            ddpi_container_of(node, struct ddpi_listener, of_server);
        if (ddpi_server_is_permanent(listener) && index-- == 0)
            return listener;
    }
    return NULL;
}

const char *ddpi_server_endpoint_at(const struct ddpi_server *server, size_t index)
{
    const struct ddpi_listener *listener = listener_at(server, index);
    return listener != NULL ? listener->endpoint : NULL;
}

const char *ddpi_server_job_at(const struct ddpi_server *server, size_t index)
{
    const struct ddpi_listener *listener = listener_at(server, index);
    return listener != NULL ? listener->job : "";
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

#define MIB ((size_t)1024 * 1024)

/* Of all connections together, and of those that are half-open. */
static void take_common_options(struct ddpi_server *server,
                                const struct ddpi_server_options *options)
{
    struct rlimit files;
    server->max_connections = OR_DEFAULT(options->max_connections, MAX_CONNECTIONS);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 2 * OTHER_FILES &&
        server->max_connections > files.rlim_cur - OTHER_FILES)
        server->max_connections = (uint32_t)(files.rlim_cur - OTHER_FILES);
    server->max_half_open = OR_DEFAULT(options->max_half_open, MAX_HALF_OPEN);
    server->shared.input.limit = OR_DEFAULT(options->input_total, 512 * MIB);
    server->shared.output.limit = OR_DEFAULT(options->output_total, 1024 * MIB);
}

/* With one processor, whoever is to ask next waits for the one that looks for it. */
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
    server->awake.window_ns = busy_poll_ns(options->busy_poll_us);
    server->max_data_ports = OR_DEFAULT(options->max_data_ports, MAX_DATA_PORTS);
}

static ddp_status create_core(struct ddpi_server *server, uint32_t rate,
                              const char *tcpstore_prefix, struct ddp_error *err)
{
    uint8_t seed[DDPI_SEED_SIZE];
    uint64_t *incarnation = &server->env.incarnation;
    if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed ||
        getrandom(incarnation, sizeof *incarnation, 0) != (ssize_t)sizeof *incarnation)
        return ddpi_error_sys(err, errno, "cannot get random bytes");
    ddpi_admission_init(&server->admission, seed);
    ddpi_rate_init(&server->rate, rate, rate * CONNECTION_BURST_S, seed);
    server->kv = ddpi_kv_create(&server->env.kv_limits, seed, ddpi_server_on_reply, server);
    if (server->kv == NULL)
        return ddpi_error_nomem(err, sizeof(void *));
    ddp_status status = ddpi_server_create_rounds(server, seed, err);
    if (status != DDP_OK)
        return status;
    return ddpi_kv_scope_get(server->kv, ddpi_bytes_of(tcpstore_prefix, strlen(tcpstore_prefix)),
                             &server->tcpstore_scope, err);
}

/* There is something left to do for the end of a turn that nobody has to send anything for. */
static bool has_more_to_do(const struct ddpi_server *server)
{
    return server->expiry_due || server->leftovers[0] != '\0' || ddpi_kv_has_work(server->kv);
}

/* While it is active the loop does not sleep; others who want the processor get it. */
static void on_no_sleep(uv_idle_t *idle)
{
    const struct ddpi_server *server = idle->data;
    if (ddpi_awake_stay(&server->awake, uv_hrtime()))
        sched_yield();
    else if (!has_more_to_do(server))
        uv_idle_stop(idle);
}

void ddpi_server_poll_once_more(struct ddpi_server *server)
{
    uv_idle_start(&server->no_sleep, on_no_sleep);
}

static void on_after_io(uv_check_t *check)
{
    struct ddpi_server *server = check->data;
    if (!ddpi_list_empty(&server->dirty)) {
        ddpi_awake_busy(&server->awake, uv_hrtime());
        if (ddpi_awake_stay(&server->awake, server->awake.busy_ns))
            uv_idle_start(&server->no_sleep, on_no_sleep);
    }
    ddpi_server_expire(server);
    ddpi_server_work(server);
    ddpi_server_settle(server);
}

static void on_before_io(uv_prepare_t *prepare)
{
    struct ddpi_server *server = prepare->data;
    ddpi_server_settle(server);
    server->shared.turn++;
    ddpi_kv_grant_work(server->kv);
}

/* None of these calls can fail. */
static void init_handles(struct ddpi_server *server)
{
    uv_timer_init(server->env.loop, &server->expiry);
    uv_check_init(server->env.loop, &server->after_io);
    uv_prepare_init(server->env.loop, &server->before_io);
    uv_idle_init(server->env.loop, &server->no_sleep);
    server->no_sleep.data = server;
    server->expiry.data = server->after_io.data = server->before_io.data = server;
    server->handles = 4;
    uv_check_start(&server->after_io, on_after_io);
    uv_prepare_start(&server->before_io, on_before_io);
}

static ddp_status load_tls(struct ddpi_server *server, const struct ddpi_server_options *options,
                           struct ddp_error *err)
{
    if (options->tls && options->auth == DDPI_SERVER_AUTH_NEVER)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "TLS takes the token, and nobody is to be asked for it (--tls and "
                              "--no-auth); leave one out");
    ddp_status status = options->tls ? ddpi_tls_engine_create(&server->tls, err) : DDP_OK;
    server->env.tls = server->tls;
    return status;
}

ddp_status ddpi_server_create_deaf(uv_loop_t *loop, const struct ddpi_server_options *options,
                                   struct ddpi_server **ret, struct ddp_error *err)
{
    struct ddpi_server *server = ddpi_calloc(1, sizeof(*server));
    if (server == NULL)
        return ddpi_error_nomem(err, sizeof(*server));
    take_options(server, options);
    ddpi_owners_init(&server->owners);
    server->vouches = options->vouches;
    take_common_options(server, options);
    ddpi_server_init_env(server, loop);
    ddpi_list_init(&server->listeners);
    ddpi_list_init(&server->conns);
    ddpi_list_init(&server->half_open);
    ddpi_list_init(&server->dirty);
    ddpi_list_init(&server->held);
    server->expiry_at = UINT64_MAX;
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
        ddpi_tls_engine_destroy(server->tls);
        ddpi_wipe(&server->token, sizeof server->token);
        ddpi_free(server);
        return status;
    }
    ddpi_kv_set_sink(server->kv, ddpi_server_on_change, server);
    ddpi_kv_reserve(server->kv, "epoch/");
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
    status = ddpi_server_listen(server, host, options->port, NULL, err);
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
    uv_update_time(server->env.loop); /* loading may have taken long */
    ddpi_kv_restore_mark(server->kv, mark, uv_now(server->env.loop));
    server->env.incarnation = mark->incarnation;
    ddpi_round_keys_restore(server->rounds);
    server->may_have_leftovers = true;
}

void ddpi_server_set_sink(struct ddpi_server *server, const struct ddpi_sink *sink,
                          void (*failed)(void *ctx, const struct ddp_error *why), void *ctx)
{
    server->sink = *sink;
    server->sink_failed = failed;
    server->sink_failed_ctx = ctx;
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
    ddpi_kv_scope_put(server->kv, server->tcpstore_scope);
    server->tcpstore_scope = scope;
    ddpi_list_for_each (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        if (conn->client.tcpstore && conn->session.identity.job[0] == '\0')
            ddpi_conn_dismiss(conn, DDP_E_CLOSED, "the generation it belongs to has ended");
    }
    return DDP_OK;
}

struct ddpi_server_stats ddpi_server_stats(const struct ddpi_server *server)
{
    struct ddpi_server_stats stats = server->counts;
    struct ddpi_kv_stats kv = ddpi_kv_stats(server->kv);
    stats.over_share = kv.shares_full;
    stats.keys = kv.keys;
    stats.bytes = kv.bytes;
    stats.reserved = kv.reserved;
    stats.waits = kv.waits;
    stats.working = kv.works;
    stats.watches = kv.watches;
    stats.sessions = kv.sessions;
    ddpi_round_keys_count(server->rounds, &stats.jobs, &stats.members);
    stats.input = server->shared.input.held;
    stats.output = server->shared.output.held;
    return stats;
}
