/*
 * server_turn.c - see server_impl.h. No reply leaves before the changes that it acknowledges are
 * committed.
 */
#include "server_impl.h"

#include "mem.h"

#include <sched.h>
#include <string.h>

enum {
    SINK_WORK = 4, /* writing a change to a sink costs as much as visiting this many entries */
    WORTH_GIVING_BACK = 16 * 1024 * 1024, /* bytes */
    WORTH_OF_KEYS = 2 * 1024 * 1024,
    BACKLOG_MOST = 64 * 1024 * 1024, /* bytes of changes that wait for a commit */
    SMALL_CHANGE = 4 * 1024,
};

/* ---- changes ---- */

static void tell_owner(const struct ddpi_server *server, const struct ddpi_mutation *mutation)
{
    static const char prefix[] = DDPI_ROUND_PREFIX;
    bool set = mutation->kind == DDPI_MUTATION_SET;
    if (!server->showing && (set || mutation->kind == DDPI_MUTATION_DELETE) &&
        mutation->key.len >= sizeof prefix - 1 &&
        memcmp(mutation->key.data, prefix, sizeof prefix - 1) == 0)
        server->rounds_elsewhere(server->rounds_ctx, mutation->key, set);
}

void ddpi_server_on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    struct ddpi_server *server = ctx;
    if (mutation->kind == DDPI_MUTATION_SESSION_END)
        ddpi_listeners_close_session(&server->listeners, mutation->session);
    if (server->rounds_elsewhere == NULL)
        ddpi_round_keys_note(server->rounds, mutation);
    else
        tell_owner(server, mutation);
    if (server->turn.sink.change == NULL)
        return;
    server->turn.changed = true;
    server->turn.changes++;
    server->turn.sink.change(server->turn.sink.ctx, mutation);
    ddpi_kv_spend_work(server->kv, SINK_WORK);
}

static size_t backlog(const struct ddpi_server *server)
{
    const struct ddpi_sink *sink = &server->turn.sink;
    return sink->backlog != NULL ? sink->backlog(sink->ctx) : 0;
}

/* Withheld replies are too small to slow down who sends large values. Who sends small ones, agents
 * above all, renews its sessions on the same connection, so it goes on for longer. */
bool ddpi_server_is_behind(const struct ddpi_server *server, size_t size)
{
    size_t most = size > SMALL_CHANGE ? BACKLOG_MOST : 2 * (size_t)BACKLOG_MOST;
    return backlog(server) > most;
}

/* Changes that no client was told of are undone when the store restarts from its sink, so no client
 * may hear of them now. */
static void drop_connections(struct ddpi_server *server, const struct ddp_error *why)
{
    server->closing = true;
    server->turn.changed = false;
    ddpi_kv_set_sink(server->kv, NULL, NULL);
    ddpi_list_for_each_safe (node, &server->conns)
        ddpi_conn_drop(ddpi_container_of(node, struct ddpi_conn, of_server), why->msg);
}

static void commit_failed(struct ddpi_server *server, const struct ddp_error *why)
{
    drop_connections(server, why);
    if (server->turn.sink_failed != NULL)
        server->turn.sink_failed(server->turn.sink_failed_ctx, why);
    else
        ddpi_log(&server->log, DDPI_LOG_ERROR, "%s", why->msg);
}

/* Calls @act for each stream that has output. */
static void for_outputs(struct ddpi_server *server, void (*act)(struct ddpi_stream *))
{
    ddpi_list_for_each (node, &server->requests.dirty)
        act(&ddpi_container_of(node, struct ddpi_conn, of_dirty)->stream);
    ddpi_list_for_each (node, &server->requests.withheld)
        act(&ddpi_container_of(node, struct ddpi_conn, of_dirty)->stream);
}

static void on_committed(void *ctx, const struct ddp_error *why)
{
    struct ddpi_server *server = ctx;
    server->turn.committing = false;
    if (why != NULL) {
        commit_failed(server, why);
        return;
    }
    server->turn.release_due = !ddpi_list_empty(&server->requests.held);
    if (server->turn.release_due)
        ddpi_server_turn_again(server);
    if (server->turn.beginning)
        return; /* all output may leave: the caller goes on */
    for_outputs(server, ddpi_stream_free_covered);
    ddpi_list_move_all(&server->requests.dirty, &server->requests.withheld);
    ddpi_server_settle(server);
}

void ddpi_server_commit(struct ddpi_server *server)
{
    if (!server->turn.changed || server->turn.committing)
        return;
    const struct ddpi_mark mark = ddpi_kv_mark(server->kv);
    const struct ddpi_committed done = {on_committed, server};
    server->turn.changed = false;
    server->turn.committing = server->turn.beginning = true;
    server->turn.sink.commit(server->turn.sink.ctx, &mark, done);
    server->turn.beginning = false;
    if (server->turn.committing)
        for_outputs(server, ddpi_stream_cover);
}

/* ---- output ---- */

/* The sink has not lost its right to the contents. */
static bool may_answer(const struct ddpi_server *server)
{
    const struct ddpi_sink *sink = &server->turn.sink;
    return sink->may_answer == NULL || sink->may_answer(sink->ctx);
}

bool ddpi_server_may_answer_all(const struct ddpi_server *server)
{
    return may_answer(server) && !server->turn.committing;
}

/* Output that depends on changes which are not durable stays; it is sent when they are. */
static void flush_connections(struct ddpi_server *server)
{
    bool may = may_answer(server);
    bool all = ddpi_server_may_answer_all(server);
    if (all)
        ddpi_list_move_all(&server->requests.dirty, &server->requests.withheld);
    while (!ddpi_list_empty(&server->requests.dirty)) {
        struct ddpi_conn *conn =
            ddpi_container_of(server->requests.dirty.next, struct ddpi_conn, of_dirty);
        ddpi_list_remove(&conn->of_dirty);
        if (all)
            ddpi_stream_free_all(&conn->stream);
        if (may)
            ddpi_conn_flush(conn);
        if (!may || ddpi_stream_withholds(&conn->stream)) {
            ddpi_list_remove(&conn->of_dirty);
            ddpi_list_append(&server->requests.withheld, &conn->of_dirty);
        }
    }
}

/* ---- the end of a turn ---- */

static void on_expiry(uv_timer_t *timer)
{
    struct ddpi_server *server = timer->data;
    server->turn.expiry_at = UINT64_MAX;
    server->turn.expiry_due = true;
    ddpi_server_turn_again(server);
}

static void update_expiry(struct ddpi_server *server)
{
    uint64_t at = ddpi_kv_next_deadline(server->kv);
    uint64_t rounds_at = server->draining ? UINT64_MAX : ddpi_round_keys_deadline(server->rounds);
    at = rounds_at < at ? rounds_at : at;
    if (at == server->turn.expiry_at)
        return;
    server->turn.expiry_at = at;
    uint64_t now = uv_now(server->shared.loop);
    if (at == UINT64_MAX)
        uv_timer_stop(&server->turn.expiry);
    else
        uv_timer_start(&server->turn.expiry, on_expiry, at > now ? at - now : 0, 0);
}

static void call_once(struct server_callback *callback)
{
    const struct server_callback copy = *callback;
    callback->call = NULL;
    copy.call(copy.ctx);
}

static bool is_drained(const struct ddpi_server *server)
{
    struct ddpi_kv_stats stats = ddpi_kv_stats(server->kv);
    if (stats.waits > 0 || stats.works > 0 || server->turn.committing)
        return false;
    ddpi_list_for_each (node, &server->conns)
        if (ddpi_stream_queued(&ddpi_container_of(node, struct ddpi_conn, of_server)->stream) > 0)
            return false;
    return true;
}

static bool is_idle(const struct ddpi_server *server)
{
    uint64_t jobs, members;
    ddpi_round_keys_count(server->rounds, &jobs, &members);
    return members == 0;
}

/* Whether @held is below half of the most it has been, by @worth or more; then that is the new
 * most. */
static bool has_shrunk(size_t *most, size_t held, size_t worth)
{
    if (held > *most)
        *most = held;
    if (*most - held < *most / 2 + worth)
        return false;
    *most = held;
    return true;
}

/* The C library gives back only the end of its heap, which one remaining key can prevent. Trimming
 * the whole heap takes some milliseconds for each 100 MiB, so it is done only when half of the
 * memory in use has been freed. Buffers come and go quickly, keys do not. */
static void give_memory_back(struct ddpi_server *server)
{
    size_t keys = ddpi_kv_stats(server->kv).bytes;
    size_t held = keys + server->shared.input.held + server->shared.output.held;
    bool fewer_keys = has_shrunk(&server->turn.most_keys, keys, WORTH_OF_KEYS);
    if (has_shrunk(&server->turn.most_held, held, WORTH_GIVING_BACK) || fewer_keys)
        ddpi_heap_trim();
}

void ddpi_server_settle(struct ddpi_server *server)
{
    if (server->closing)
        return;
    if (!server->draining) /* a server that is about to end starts nothing */
        ddpi_round_keys_act(server->rounds, uv_now(server->shared.loop));
    if (ddpi_server_make_room(server))
        ddpi_server_turn_again(server);
    ddpi_server_commit(server);
    if (server->closing)
        return;
    flush_connections(server);
    if (ddpi_kv_has_work(server->kv))
        ddpi_server_turn_again(server);
    update_expiry(server);
    give_memory_back(server);
    if (server->drained.call != NULL && is_drained(server))
        call_once(&server->drained);
    if (server->idle.call != NULL && is_idle(server))
        call_once(&server->idle);
    ddpi_server_look_for_end(server);
}

/* ---- after the input of a turn ---- */

/* Not earlier: a server that was suspended would otherwise end leases that were renewed, and time
 * out waits that were canceled, in input that it has not read yet. */
static void expire(struct ddpi_server *server)
{
    if (!server->turn.expiry_due)
        return;
    server->turn.expiry_due = false;
    ddpi_kv_grant_work(server->kv); /* independent of the requests of this turn */
    ddpi_kv_expire(server->kv, uv_now(server->shared.loop));
}

/* Continue requests that were put off, and the connections that wait for them. */
static void work(struct ddpi_server *server)
{
    ddpi_kv_grant_work(server->kv);
    ddpi_kv_work(server->kv, uv_now(server->shared.loop));
    server->turn.release_due = false;
    ddpi_list_for_each_safe (node, &server->requests.held) {
        struct ddpi_conn *conn = ddpi_container_of(node, struct ddpi_conn, of_held);
        if (conn->client.nworks > 0 || (conn->must_wait && backlog(server) > BACKLOG_MOST / 2))
            continue;
        conn->must_wait = false;
        ddpi_list_remove(&conn->of_held);
        ddpi_conn_release(conn);
    }
}

/* The end of a turn has something to do without further input. */
static bool has_more_to_do(const struct ddpi_server *server)
{
    return server->turn.expiry_due || server->turn.release_due ||
           server->reclaim.prefix[0] != '\0' || ddpi_kv_has_work(server->kv);
}

/* While it is active the loop does not sleep; other threads that need the processor get it. */
static void on_no_sleep(uv_idle_t *idle)
{
    const struct ddpi_server *server = idle->data;
    if (ddpi_busy_poll_continues(&server->turn.busy_poll, uv_hrtime()))
        sched_yield();
    else if (!has_more_to_do(server))
        uv_idle_stop(idle);
}

void ddpi_server_turn_again(struct ddpi_server *server)
{
    uv_idle_start(&server->turn.no_sleep, on_no_sleep);
}

static void on_after_io(uv_check_t *check)
{
    struct ddpi_server *server = check->data;
    if (!ddpi_list_empty(&server->requests.dirty)) {
        uint64_t now_ns = uv_hrtime();
        ddpi_busy_poll_input(&server->turn.busy_poll, now_ns);
        if (ddpi_busy_poll_continues(&server->turn.busy_poll, now_ns))
            ddpi_server_turn_again(server);
    }
    if (!server->closing) {
        expire(server);
        work(server);
    }
    ddpi_server_settle(server);
}

static void on_before_io(uv_prepare_t *prepare)
{
    struct ddpi_server *server = prepare->data;
    ddpi_server_settle(server);
    server->shared.turn++;
    ddpi_kv_grant_work(server->kv);
}

void ddpi_server_turn_start(struct ddpi_server *server)
{
    server->turn.expiry_at = UINT64_MAX;
    uv_timer_init(server->shared.loop, &server->turn.expiry);
    uv_check_init(server->shared.loop, &server->turn.after_io);
    uv_prepare_init(server->shared.loop, &server->turn.before_io);
    uv_idle_init(server->shared.loop, &server->turn.no_sleep);
    server->turn.expiry.data = server->turn.after_io.data = server;
    server->turn.before_io.data = server->turn.no_sleep.data = server;
    server->turn.handles = 4;
    uv_check_start(&server->turn.after_io, on_after_io);
    uv_prepare_start(&server->turn.before_io, on_before_io);
}

void ddpi_server_turn_close(struct ddpi_server *server, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&server->turn.expiry, closed);
    uv_close((uv_handle_t *)&server->turn.after_io, closed);
    uv_close((uv_handle_t *)&server->turn.before_io, closed);
    uv_close((uv_handle_t *)&server->turn.no_sleep, closed);
}
