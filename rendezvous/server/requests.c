/*
 * requests.c - passes requests to the core, answers those about jobs and statistics, and hands
 * replies to connections.
 */
#include "mem.h"
#include "permissions.h"
#include "server.h"
#include "server_impl.h"
#include "server_stats.h"

#include <inttypes.h>
#include <string.h>

void ddpi_server_on_ahead(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys,
                          size_t count)
{
    const struct ddpi_server *server = owner;
    ddpi_kv_prefetch(server->kv, &conn->client, keys, count);
}

/* Requests about jobs, which the core does not know. */
static ddp_status serve_request(struct ddpi_server *server, struct ddpi_conn *conn,
                                const struct ddpi_message *request, struct ddpi_message *reply,
                                struct ddp_error *err)
{
    if (request->op == DDPI_OP_FENCE)
        return ddpi_server_fence(server, conn, request, reply, err);
    return ddpi_server_open_port(server, conn, request, reply, err);
}

enum { STATS_MAX = 64 * 1024 };

static void answer_stats(struct ddpi_server *server, struct ddpi_conn *conn, uint64_t id)
{
    struct ddpi_buf text;
    ddpi_buf_init(&text, STATS_MAX);
    ddpi_server_stats_format(server, conn->dialect_state.identity.job, &text);
    const struct ddpi_message reply = {
        .op = DDPI_OP_STATS,
        .id = id,
        .value = ddpi_bytes_of(ddpi_buf_head(&text), ddpi_buf_len(&text))};
    ddpi_conn_reply(conn, &reply);
    ddpi_buf_finish(&text);
}

/* A keeper that is stopped must not go on to speak. */
static void answer_keeper(struct ddpi_server *server, struct ddpi_conn *conn, uint64_t id)
{
    uint64_t age_ms = uv_now(server->shared.loop) - server->keeper_status_ms;
    size_t len = age_ms <= DDPI_SERVER_KEEPER_STATUS_MS ? server->keeper_status_len : 0;
    ddpi_conn_reply(
        conn, &(const struct ddpi_message){.op = DDPI_OP_KEEPER_STATUS,
                                           .id = id,
                                           .value = ddpi_bytes_of(server->keeper_status, len)});
}

static void answer_client(struct ddpi_conn *conn, const struct ddpi_message *request,
                          struct ddpi_message *reply, ddp_status status,
                          const struct ddp_error *err)
{
    reply->op = request->op;
    reply->id = request->id;
    reply->status = status;
    if (status != DDP_OK)
        reply->text = ddpi_bytes_of(err->msg, strlen(err->msg));
    ddpi_conn_reply(conn, reply);
}

bool ddpi_server_on_request(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request)
{
    struct ddpi_server *server = owner;
    struct ddpi_message reply = {0};
    struct ddp_error err;
    server->requests.served++;
    server->requests.by_op[request->op]++;
    ddp_status status = ddpi_role_permits(&conn->dialect_state.identity, request, &err);
    if (status != DDP_OK) {
        answer_client(conn, request, &reply, status, &err);
    } else if (request->op == DDPI_OP_STATS) {
        answer_stats(server, conn, request->id);
    } else if (request->op == DDPI_OP_KEEPER_STATUS) {
        answer_keeper(server, conn, request->id);
    } else if (request->op == DDPI_OP_FENCE || request->op == DDPI_OP_OPEN_PORT) {
        status = serve_request(server, conn, request, &reply, &err);
        answer_client(conn, request, &reply, status, &err);
    } else {
        uint64_t before = server->turn.changes;
        ddpi_kv_apply(server->kv, &conn->client, request, uv_now(server->shared.loop));
        conn->must_wait =
            server->turn.changes != before && ddpi_server_is_behind(server, request->value.len);
    }
    if (conn->client.nworks == 0 && !conn->must_wait)
        return true;
    if (ddpi_list_empty(&conn->of_held))
        ddpi_list_append(&server->requests.held, &conn->of_held);
    return false;
}

void ddpi_server_on_reply(void *ctx, struct ddpi_kv_client *client,
                          const struct ddpi_message *reply)
{
    struct ddpi_server *server = ctx;
    if (reply->status == DDP_E_LIMIT && ddpi_refusals_count(&server->refusals, REFUSAL_limited))
        ddpi_log(&server->log, DDPI_LOG_WARN, "refused a %s: %.*s", ddpi_op_name(reply->op),
                 (int)reply->text.len, (const char *)reply->text.data);
    ddpi_conn_reply(ddpi_container_of(client, struct ddpi_conn, client), reply);
}

void ddpi_server_on_dirty(void *owner, struct ddpi_conn *conn)
{
    struct ddpi_server *server = owner;
    if (ddpi_list_empty(&conn->of_dirty))
        ddpi_list_append(&server->requests.dirty, &conn->of_dirty);
}
