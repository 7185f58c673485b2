/*
 * job_end.c - the end of a store that is for one job. The key "closed/JOB" says that the job has
 * had a result, and that its last member has left. It is written in the turn in which that happens,
 * so another server that takes this one's place finds either the members or the key. It goes when
 * the job has members again. A job that has had none for ten minutes is over, too: by default,
 * agents that cannot join give up by then.
 */
#include "server.h"
#include "server_impl.h"

#include <stdio.h>
#include <string.h>

enum { DESERTED_MS = 10 * 60 * 1000 };

struct closed_key {
    char text[sizeof "closed/" + DDPI_JOB_MAX];
    struct ddpi_bytes all;
};

static void closed_key(struct closed_key *key, const char *job)
{
    int len = snprintf(key->text, sizeof key->text, "closed/%s", job);
    key->all = ddpi_bytes_of(key->text, (size_t)len);
}

void ddpi_server_note_end(struct ddpi_server *server, const char *job)
{
    struct closed_key key;
    struct ddp_error err;
    if (strcmp(server->job_end.job, job) != 0)
        return;
    closed_key(&key, job);
    if (ddpi_kv_poke(server->kv, key.all, ddpi_bytes_of("1", 1), &err) != DDP_OK)
        ddpi_log(&server->log, DDPI_LOG_WARN, "job %s: that it is over cannot be noted: %s", job,
                 err.msg);
}

void ddpi_server_note_begin(struct ddpi_server *server, const char *job)
{
    struct closed_key key;
    if (strcmp(server->job_end.job, job) != 0)
        return;
    closed_key(&key, job);
    ddpi_kv_remove(server->kv, key.all);
}

/* As of a change that is durable: a server that is no longer the leader must not say so. Other jobs
 * may use the store, too. */
static bool is_over(struct ddpi_server *server)
{
    const char *job = server->job_end.job;
    uint64_t now_ms = uv_now(server->shared.loop);
    struct closed_key key;
    if (server->standby.on ||
        ddpi_round_keys_has(server->rounds, ddpi_bytes_of(job, strlen(job)))) {
        server->job_end.deserted_ms = now_ms;
        return false;
    }
    if (ddpi_round_keys_other(server->rounds, job) != NULL)
        return false;
    closed_key(&key, job);
    bool closed = ddpi_kv_peek(server->kv, key.all).data != NULL;
    return (closed || now_ms - server->job_end.deserted_ms >= DESERTED_MS) &&
           ddpi_server_may_answer_all(server);
}

/* All that a standby would not admit. */
static void dismiss_clients(struct ddpi_server *server)
{
    ddpi_list_for_each (node, &server->conns) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_server);
        const struct ddpi_identity *identity = &conn->dialect_state.identity;
        bool keeper = identity->role == DDPI_ROLE_KEEPER && identity->proven;
        if (ddpi_list_empty(&conn->of_half_open) && !keeper)
            ddpi_conn_dismiss(conn, DDP_E_CLOSED, "the job of this store is over");
    }
}

void ddpi_server_look_for_end(struct ddpi_server *server)
{
    const struct server_callback over = server->job_end.over;
    if (over.call == NULL || !is_over(server))
        return;
    ddpi_log(&server->log, DDPI_LOG_INFO, "job %s is over, and so is its store",
             server->job_end.job);
    server->job_end.over.call = NULL;
    ddpi_server_stand_by(server, "", 0);
    dismiss_clients(server);
    ddpi_server_turn_again(server);
    over.call(over.ctx);
}

void ddpi_server_end_with(struct ddpi_server *server, const char *job, void (*over)(void *ctx),
                          void *ctx)
{
    snprintf(server->job_end.job, sizeof server->job_end.job, "%s", job);
    server->job_end.over = (struct server_callback){over, ctx};
    server->job_end.deserted_ms = uv_now(server->shared.loop);
    ddpi_server_turn_again(server);
}
