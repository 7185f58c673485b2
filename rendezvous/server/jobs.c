/*
 * jobs.c - the jobs of a server: which keys each of them sees, its epoch, and its data ports.
 * TCPStore clients cannot name their job; on a data port they belong to the job of the port.
 *
 * A job has no object: it is the prefix "job/NAME/" of the keys that its clients see, and the key
 * "epoch/NAME", which they do not see. So a store that restarts with its state has all of it,
 * except the data ports.
 */
#include "server_impl.h"

#include "error.h"
#include "parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct text {
    char bytes[sizeof "epoch//tcp/" + DDPI_JOB_MAX];
    struct ddpi_bytes all;
};

static void text_join(struct text *text, const char *before, const char *job, const char *behind)
{
    int len = snprintf(text->bytes, sizeof text->bytes, "%s%s%s", before, job, behind);
    text->all = ddpi_bytes_of(text->bytes, (size_t)len);
}

uint64_t ddpi_server_epoch(const struct ddpi_server *server, const char *job)
{
    struct text key;
    int64_t epoch = 0;
    text_join(&key, "epoch/", job, "");
    struct ddpi_bytes value = ddpi_kv_peek(server->kv, key.all);
    if (value.len > 0 && ddpi_parse_int(value.data, 0, INT64_MAX, &epoch, NULL) != DDP_OK)
        return INT64_MAX;
    return (uint64_t)epoch;
}

static ddp_status check_epoch(const struct ddpi_server *server,
                              const struct ddpi_identity *identity, struct ddp_error *err)
{
    uint64_t epoch = ddpi_server_epoch(server, identity->job);
    if (identity->role != DDPI_ROLE_WORKER || identity->epoch >= epoch)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_DENIED,
                          "this worker belongs to epoch %" PRIu64
                          " of the job '%s', which is now in epoch %" PRIu64,
                          identity->epoch, identity->job, epoch);
}

ddp_status ddpi_server_enter_job(struct ddpi_server *server, struct ddpi_conn *conn,
                                 struct ddp_error *err)
{
    struct ddpi_identity *identity = &conn->dialect_state.identity;
    if (conn->job[0] != '\0' && identity->job[0] != '\0' && strcmp(conn->job, identity->job) != 0)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this port belongs to the job '%s', and the client to '%s'",
                              conn->job, identity->job);
    if (conn->job[0] != '\0')
        memcpy(identity->job, conn->job, sizeof identity->job);
    conn->client.agent =
        identity->job[0] == '\0' && identity->role == DDPI_ROLE_AGENT && !conn->client.tcpstore;
    if (identity->job[0] == '\0' && !conn->client.tcpstore)
        return DDP_OK;
    ddp_status status = check_epoch(server, identity, err);
    if (status != DDP_OK)
        return status;
    struct text prefix = {.all = ddpi_kv_scope_prefix(server->jobs.tcpstore_scope)};
    if (identity->job[0] != '\0')
        text_join(&prefix, "job/", identity->job, conn->client.tcpstore ? "/tcp/" : "/");
    return ddpi_kv_scope_get(server->kv, prefix.all, &conn->client.scope, err);
}

/* ---- requests ---- */

/* The job that a request names in its key, or else the job of the client. */
static ddp_status take_job(const struct ddpi_conn *conn, const struct ddpi_message *request,
                           char ret_job[DDPI_JOB_MAX + 1], struct ddp_error *err)
{
    const char *own = conn->dialect_state.identity.job;
    struct ddpi_bytes name = request->key;
    if (name.len == 0)
        name = ddpi_bytes_of(own, strlen(own));
    if (name.len == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%s without a job: name one",
                              ddpi_op_name(request->op));
    if (!ddpi_job_valid(name.data, name.len))
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "'%.*s' cannot be the name of a job: it has 1 to %d of [A-Za-z0-9._-], "
            "of which the first is no '.', and is not '-' alone",
            (int)(name.len < 80 ? name.len : 80), (const char *)name.data, DDPI_JOB_MAX);
    if (own[0] != '\0' && !ddpi_bytes_equal(name, ddpi_bytes_of(own, strlen(own))))
        return ddpi_error_set(err, DDP_E_DENIED, "this client belongs to the job '%s'", own);
    memcpy(ret_job, name.data, name.len);
    ret_job[name.len] = '\0';
    return DDP_OK;
}

/* Dismiss the clients of earlier epochs of @job. TCPStore clients do not name their epoch, but each
 * epoch has its own. */
static void dismiss_old(struct ddpi_server *server, const char *job, uint64_t epoch)
{
    char why[128];
    snprintf(why, sizeof why, "the job is now in epoch %" PRIu64, epoch);
    ddpi_list_for_each (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        const struct ddpi_identity *identity = &conn->dialect_state.identity;
        if (strcmp(identity->job, job) == 0 &&
            (conn->client.tcpstore ||
             (identity->role == DDPI_ROLE_WORKER && identity->epoch < epoch)))
            ddpi_conn_dismiss(conn, DDP_E_CLOSED, why);
    }
}

ddp_status ddpi_server_set_epoch(struct ddpi_server *server, const char *job, uint64_t epoch,
                                 struct ddp_error *err)
{
    char value[24];
    struct text key, keyspace;
    uint64_t now = ddpi_server_epoch(server, job);
    if (epoch > INT64_MAX || epoch < now)
        return ddpi_error_set(err, DDP_E_CONFLICT,
                              "the job '%s' is in epoch %" PRIu64 ", and epochs only grow", job,
                              now);
    if (epoch == now)
        return DDP_OK;
    text_join(&key, "epoch/", job, "");
    text_join(&keyspace, "job/", job, "/tcp/");
    int len = snprintf(value, sizeof value, "%" PRIu64, epoch);
    ddp_status status = ddpi_kv_poke(server->kv, key.all, ddpi_bytes_of(value, (size_t)len), err);
    if (status != DDP_OK)
        return status;
    /* TCPStore clients do not name their epoch, but the data ports belong to the old one. */
    ddpi_listeners_close_job(&server->listeners, job);
    dismiss_old(server, job, epoch);
    ddpi_kv_detach(server->kv, keyspace.all);
    return DDP_OK;
}

ddp_status ddpi_server_fence(struct ddpi_server *server, struct ddpi_conn *conn,
                             const struct ddpi_message *request, struct ddpi_message *reply,
                             struct ddp_error *err)
{
    char job[DDPI_JOB_MAX + 1];
    ddp_status status = take_job(conn, request, job, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_server_set_epoch(server, job, (uint64_t)request->number, err);
    reply->version = ddpi_server_epoch(server, job);
    return status;
}

ddp_status ddpi_server_open_port(struct ddpi_server *server, struct ddpi_conn *conn,
                                 const struct ddpi_message *request, struct ddpi_message *reply,
                                 struct ddp_error *err)
{
    struct ddpi_listen_at at = {0};
    char host[DDPI_ENDPOINT_MAX];
    ddp_status status = take_job(conn, request, at.job, err);
    if (status != DDP_OK)
        return status;
    if (server->draining)
        return ddpi_error_set(err, DDP_E_CLOSED, "the server is about to end");
    at.session = ddpi_kv_session_number(server->kv, request->session);
    if (at.session == 0)
        return ddpi_error_set(
            err, DDP_E_NOT_FOUND,
            "the session does not exist: its lease has expired, or it was closed");
    status = ddpi_listeners_check_room(&server->listeners, err);
    if (status != DDP_OK)
        return status;
    ddpi_stream_local_host(&conn->stream, host, sizeof host);
    at.host = host;
    const struct ddpi_listener *listener;
    status = ddpi_listeners_add(&server->listeners, &at, &listener, err);
    if (status != DDP_OK)
        return status;
    reply->number = listener->port;
    ddpi_log(&server->log, DDPI_LOG_INFO, "listening on %s for the job '%s'", listener->endpoint,
             at.job);
    return DDP_OK;
}
