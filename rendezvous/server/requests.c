/*
 * requests.c - the server at work: who is admitted, what they ask and are answered, and the end
 * of a turn, at which answers leave. Connections own themselves; who may become one is
 * door.c's to say.
 */
#include "error.h"
#include "mem.h"
#include "permissions.h"
#include "server_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* To write a change into a state costs as much as looking at so many entries. */
enum { SINK_WORK = 4 };

enum { WORTH_GIVING_BACK = 16 * 1024 * 1024, WORTH_OF_KEYS = 2 * 1024 * 1024 };

/* --- the end of a turn --- */

static void on_expiry(uv_timer_t *timer)
{
    struct ddpi_server *server = timer->data;
    server->expiry_at = UINT64_MAX;
    server->expiry_due = true;
    ddpi_server_poll_once_more(server);
}

static void update_expiry(struct ddpi_server *server)
{
    uint64_t at = ddpi_kv_next_deadline(server->kv);
    uint64_t rounds_at = server->draining ? UINT64_MAX : ddpi_round_keys_deadline(server->rounds);
    at = rounds_at < at ? rounds_at : at;
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
    struct ddpi_kv_stats stats = ddpi_kv_stats(server->kv);
    if (server->drained_cb == NULL || stats.waits > 0 || stats.works > 0 ||
        has_unsent_replies(server))
        return;
    void (*cb)(void *ctx) = server->drained_cb;
    server->drained_cb = NULL;
    cb(server->drained_ctx);
}

static void tell_if_deserted(struct ddpi_server *server)
{
    if (server->deserted_cb == NULL || ddpi_server_stats(server).members > 0)
        return;
    void (*cb)(void *ctx) = server->deserted_cb;
    server->deserted_cb = NULL;
    cb(server->deserted_ctx);
}

void ddpi_server_when_deserted(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx)
{
    server->deserted_cb = cb;
    server->deserted_ctx = ctx;
    ddpi_server_poll_once_more(server);
}

void ddpi_server_on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    struct ddpi_server *server = ctx;
    if (mutation->kind == DDPI_MUTATION_SESSION_END)
        ddpi_server_close_ports(server, mutation->session);
    ddpi_round_keys_note(server->rounds, mutation);
    if (server->sink.change == NULL)
        return;
    server->changed = true;
    server->sink.change(server->sink.ctx, mutation);
    ddpi_kv_spend_work(server->kv, SINK_WORK);
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

ddp_status ddpi_server_commit(struct ddpi_server *server, struct ddp_error *err)
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

/* Whether half of what there was, and @worth more, has gone since it was last true. */
static bool has_ebbed(size_t *most, size_t held, size_t worth)
{
    if (held > *most)
        *most = held;
    if (*most - held < *most / 2 + worth)
        return false;
    *most = held;
    return true;
}

/* The C library gives back only what lies at the end of its heap, and one key that stays can keep
 * it from that. To look through all of it takes some ms for each 100 MiB, so it is done when half
 * of what was there has gone; buffers come and go in no time, keys do not. */
static void give_memory_back(struct ddpi_server *server)
{
    size_t keys = ddpi_kv_stats(server->kv).bytes;
    size_t held = keys + server->shared.input.held + server->shared.output.held;
    bool fewer_keys = has_ebbed(&server->most_keys, keys, WORTH_OF_KEYS);
    if (has_ebbed(&server->most_held, held, WORTH_GIVING_BACK) || fewer_keys)
        ddpi_heap_trim();
}

/* Not before all that has come is read: a server that was suspended would else find leases over
 * that were kept, and waits late that were canceled. */
void ddpi_server_expire(struct ddpi_server *server)
{
    if (!server->expiry_due || server->closing)
        return;
    server->expiry_due = false;
    ddpi_kv_grant_work(server->kv); /* whatever was asked for before: what is left is due at once */
    ddpi_kv_expire(server->kv, uv_now(server->env.loop));
}

void ddpi_server_settle(struct ddpi_server *server)
{
    struct ddp_error why = {0};
    if (server->closing)
        return;
    if (!server->draining) /* a server that is about to end begins nothing: the next one does */
        ddpi_round_keys_act(server->rounds, uv_now(server->env.loop));
    ddpi_server_make_room(server);
    if (ddpi_server_commit(server, &why) != DDP_OK) {
        server->sink_failed(server->sink_failed_ctx, &why);
        return;
    }
    while (!ddpi_list_empty(&server->dirty)) {
        struct ddpi_list *node = server->dirty.next;
        ddpi_list_remove(node);
        ddpi_conn_flush(ddpi_container_of(node, struct ddpi_conn, of_dirty));
    }
    if (ddpi_kv_has_work(server->kv))
        ddpi_server_poll_once_more(server);
    update_expiry(server);
    give_memory_back(server);
    tell_if_drained(server);
    tell_if_deserted(server);
}

/* --- requests and replies --- */

enum { STATS_MAX = 64 * 1024, JOBS_IN_STATS = 100 };

/* A line for each of DDPI_SERVER_STATS, then for what jobs use: a name, a blank, a number. */
static void answer_stats(struct ddpi_server *server, struct ddpi_conn *conn, uint64_t id)
{
    char text[1024];
    struct ddpi_buf lines;
    struct ddpi_server_stats stats = ddpi_server_stats(server);
    int len = snprintf(text, sizeof text,
#define FORMAT(name) #name " %" PRIu64 "\n"
                       DDPI_SERVER_STATS(FORMAT)
#undef FORMAT
#define VALUE(name) , stats.name
                           DDPI_SERVER_STATS(VALUE)
#undef VALUE
    );
    ddpi_buf_init(&lines, STATS_MAX);
    (void)ddpi_buf_append(&lines, text, (size_t)len); /* what there is no memory for is left out */
    ddpi_server_list_jobs(server, conn->session.identity.job, JOBS_IN_STATS, &lines);
    const struct ddpi_message reply = {
        .op = DDPI_OP_STATS,
        .id = id,
        .value = ddpi_bytes_of(ddpi_buf_head(&lines), ddpi_buf_len(&lines))};
    ddpi_conn_reply(conn, &reply);
    ddpi_buf_finish(&lines);
}

static void on_ahead(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys,
                     size_t count)
{
    const struct ddpi_server *server = owner;
    ddpi_kv_prefetch(server->kv, &conn->client, keys, count);
}

/* What the core knows nothing of: connections and listeners. */
static ddp_status serve_request(struct ddpi_server *server, struct ddpi_conn *conn,
                                const struct ddpi_message *request, struct ddpi_message *reply,
                                struct ddp_error *err)
{
    if (request->op == DDPI_OP_FENCE)
        return ddpi_server_fence(server, conn, request, reply, err);
    return ddpi_server_open_port(server, conn, request, reply, err);
}

static void answer(struct ddpi_conn *conn, const struct ddpi_message *request,
                   struct ddpi_message *reply, ddp_status status, const struct ddp_error *err)
{
    reply->op = request->op;
    reply->id = request->id;
    reply->status = status;
    if (status != DDP_OK)
        reply->text = ddpi_bytes_of(err->msg, strlen(err->msg));
    ddpi_conn_reply(conn, reply);
}

static void on_request(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request)
{
    struct ddpi_server *server = owner;
    struct ddpi_message reply = {0};
    struct ddp_error err;
    server->counts.requests++;
    ddp_status status = ddpi_role_permits(&conn->session.identity, request, &err);
    if (status != DDP_OK) {
        answer(conn, request, &reply, status, &err);
    } else if (request->op == DDPI_OP_STATS) {
        answer_stats(server, conn, request->id);
    } else if (request->op == DDPI_OP_FENCE || request->op == DDPI_OP_OPEN_PORT) {
        status = serve_request(server, conn, request, &reply, &err);
        answer(conn, request, &reply, status, &err);
    } else {
        ddpi_kv_apply(server->kv, &conn->client, request, uv_now(server->env.loop));
    }
}

void ddpi_server_on_reply(void *ctx, struct ddpi_kv_client *client,
                          const struct ddpi_message *reply)
{
    struct ddpi_server *server = ctx;
    if (reply->status == DDP_E_LIMIT && ddpi_server_refuse(server, REFUSAL_limited))
        ddpi_log(&server->log, DDPI_LOG_WARN, "refused a %s: %.*s", ddpi_op_name(reply->op),
                 (int)reply->text.len, (const char *)reply->text.data);
    ddpi_conn_reply(ddpi_container_of(client, struct ddpi_conn, client), reply);
}

static void on_held(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    if (ddpi_list_empty(&conn->of_held))
        ddpi_list_append(&server->held, &conn->of_held);
}

void ddpi_server_work(struct ddpi_server *server)
{
    if (server->closing)
        return;
    ddpi_kv_grant_work(server->kv);
    ddpi_kv_work(server->kv, uv_now(server->env.loop));
    ddpi_list_for_each_safe (node, &server->held) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_held);
        if (conn->client.nworks > 0)
            continue;
        ddpi_list_remove(&conn->of_held);
        ddpi_conn_release(conn);
    }
}

static void on_dirty(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    if (ddpi_list_empty(&conn->of_dirty))
        ddpi_list_append(&server->dirty, &conn->of_dirty);
}

/* --- who comes and goes --- */

/* A TCPStore client cannot prove who it is. */
static ddp_status check_vouched(const struct ddpi_server *server, const struct ddpi_conn *conn,
                                struct ddp_error *err)
{
    const struct ddpi_visitor *visitor = &conn->visitor;
    if (conn->session.needs_tls && !server->env.gate.tcpstore_in_clear)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a TCPStore client cannot speak TLS, which this server asks for "
                              "(--tls); --tcpstore-in-clear lets it in all the same");
    char who[32] = "an unknown user";
    if (visitor->known)
        snprintf(who, sizeof who, "user %" PRIu32, visitor->owner);
    if (visitor->stranger)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a TCPStore client of %s, while only those of the server's own user "
                              "are let in without a proof (but for --trust-local-users)",
                              who);
    if (!visitor->must_prove || (server->vouches && visitor->loopback) ||
        ddpi_admission_vouched(&server->admission, &visitor->address, conn->job))
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_DENIED,
        "a TCPStore client cannot prove who it is, and no agent that has the token "
        "and vouches for its job is connected from its host");
}

/* An agent that is kept to a job vouches for that one. */
static ddp_status let_vouch(struct ddpi_server *server, struct ddpi_conn *conn,
                            struct ddp_error *err)
{
    const struct ddpi_identity *who = &conn->session.identity;
    char *job = conn->session.vouches_for;
    if (!who->proven || who->role != DDPI_ROLE_AGENT)
        return DDP_OK;
    if (who->job[0] != '\0')
        memcpy(job, who->job, sizeof who->job);
    if (!ddpi_admission_enter(&server->admission, &conn->visitor.address, job))
        return ddpi_error_nomem(err, sizeof conn->visitor);
    conn->vouches = true;
    return DDP_OK;
}

static ddp_status on_admit(void *owner, struct ddpi_conn *conn, struct ddp_error *err)
{
    struct ddpi_server *server = owner;
    if (conn->client.tcpstore && conn->job[0] == '\0')
        memcpy(conn->job, server->tcpstore_job, sizeof conn->job);
    ddp_status status = conn->client.tcpstore ? check_vouched(server, conn, err) : DDP_OK;
    if (status == DDP_OK)
        status = ddpi_server_enter_job(server, conn, err);
    if (status == DDP_OK)
        status = let_vouch(server, conn, err);
    if (status != DDP_OK)
        return status;
    ddpi_server_not_half_open(server, conn);
    return DDP_OK;
}

static void on_gone(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    ddpi_server_charge(server, conn);
    if (conn->vouches)
        ddpi_admission_leave(&server->admission, &conn->visitor.address, conn->session.vouches_for);
    if (conn->peer_ended)
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
    server->counts.connections--;
    ddpi_free(conn);
    ddpi_server_maybe_closed(server);
}

static void on_settle(void *owner)
{
    ddpi_server_settle(owner);
}

static void on_listener_closed(void *owner)
{
    struct ddpi_server *server = owner;
    server->handles--;
    ddpi_server_maybe_closed(server);
}

void ddpi_server_init_env(struct ddpi_server *server, uv_loop_t *loop)
{
    server->env.loop = loop;
    server->env.log = &server->log;
    server->env.owner = server;
    server->env.admit = on_admit;
    server->env.ahead = on_ahead;
    server->env.fault = ddpi_server_on_fault;
    server->env.request = on_request;
    server->env.settle = on_settle;
    server->env.dirty = on_dirty;
    server->env.held = on_held;
    server->env.gone = on_gone;
    server->env.closed = on_conn_closed;
    server->env.shared = &server->shared;
    server->env.scratch = server->scratch;
    server->env.scratch_size = sizeof server->scratch;
    server->listener_env = (struct ddpi_listener_env){.loop = loop,
                                                      .log = &server->log,
                                                      .owner = server,
                                                      .connected = ddpi_server_on_connected,
                                                      .shed = ddpi_server_on_shed,
                                                      .closed = on_listener_closed};
}
