/*
 * conn_end.c - how a connection ends: its deadlines, what it tells the peer, and the closing of its
 * handles. Also what its buffers count against the budgets, as closing gives that back.
 */
#include "conn_impl.h"
#include "mem.h"

enum {
    KEEP_EMPTY = 4 * 1024, /* the size up to which an empty buffer keeps its memory */
    DENIAL_MIN_MS = 50,    /* until a denied peer is told so */
    DENIAL_MAX_MS = 150,
};

enum deadline {
    DEADLINE_NONE,
    DEADLINE_HANDSHAKE,
    DEADLINE_FRAME,
    DEADLINE_OUTPUT,
    DEADLINE_DENIAL,
    DEADLINE_LINGER
};

void ddpi_conn_log_end(const struct ddpi_conn *conn, const char *why)
{
    char host[DDPI_ADDRESS_CHARS];
    if (conn->at_fault && !conn->env->fault(conn->env->owner, conn))
        return;
    ddpi_address_format(&conn->peer.address, host);
    ddpi_log(conn->env->log, conn->at_fault ? DDPI_LOG_WARN : DDPI_LOG_DEBUG,
             "connection from %s port %u %s: %s", host, conn->peer.port,
             conn->denied ? "denied" : "closed", why);
}

void ddpi_conn_trim(struct ddpi_buf *buf)
{
    if (ddpi_buf_len(buf) == 0 && buf->size > KEEP_EMPTY)
        ddpi_buf_finish(buf);
}

bool ddpi_conn_update_budgets(struct ddpi_conn *conn)
{
    struct ddpi_conn_shared *shared = conn->env->shared;
    /* The limit on replies is checked before they are queued. */
    (void)ddpi_budget_move(&shared->output, &conn->out_held,
                           conn->out.size + conn->sealed.size + conn->flight.size);
    return ddpi_budget_move(&shared->input, &conn->in_held, conn->in.size);
}

static void conn_maybe_closed(uv_handle_t *handle)
{
    struct ddpi_conn *conn = handle->data;
    if (--conn->handles > 0)
        return;
    ddpi_buf_finish(&conn->in);
    ddpi_buf_finish(&conn->out);
    ddpi_buf_finish(&conn->sealed);
    ddpi_buf_finish(&conn->flight);
    ddpi_tls_destroy(conn->tls);
    (void)ddpi_conn_update_budgets(conn);
    ddpi_free(conn->refusal);
    ddpi_wipe(&conn->session, sizeof conn->session);
    conn->env->closed(conn->env->owner, conn);
}

/* Move to a state in which no request is served. */
static void stop_serving(struct ddpi_conn *conn, unsigned state)
{
    bool was_serving = ddpi_conn_serving(conn);
    ddpi_sm_move(&conn->sm, state);
    if (was_serving)
        conn->env->gone(conn->env->owner, conn);
}

void ddpi_conn_close_handles(struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    stop_serving(conn, CONN_CLOSING);
    uv_close((uv_handle_t *)&conn->tcp, conn_maybe_closed);
    uv_close((uv_handle_t *)&conn->timer, conn_maybe_closed);
}

void ddpi_conn_end(struct ddpi_conn *conn, const char *why)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (ddpi_conn_serving(conn))
        ddpi_conn_log_end(conn, why);
    ddpi_conn_close_handles(conn);
}

/* ---- lingering ---- */

static void drop_input(struct ddpi_conn *conn)
{
    ddpi_buf_finish(&conn->in);
    (void)ddpi_conn_update_budgets(conn);
}

static void on_linger_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    const struct ddpi_conn *conn = handle->data;
    *ret = uv_buf_init(conn->env->scratch, (unsigned)conn->env->scratch_size);
}

/* Drop the input; its end ends the connection. */
static void on_linger_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    (void)buf;
    if (nread < 0)
        ddpi_conn_close_handles(stream->data);
}

void ddpi_conn_linger(struct ddpi_conn *conn)
{
    stop_serving(conn, CONN_LINGERING);
    drop_input(conn);
    ddpi_conn_update_deadline(conn, false);
    conn->env->dirty(conn->env->owner, conn);
    uv_read_stop((uv_stream_t *)&conn->tcp);
    if (!conn->peer_sent_all &&
        uv_read_start((uv_stream_t *)&conn->tcp, on_linger_alloc, on_linger_read) != 0)
        ddpi_conn_close_handles(conn);
}

void ddpi_conn_farewell(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    size_t before = ddpi_buf_len(&conn->out);
    if (conn->dialect != NULL && conn->dialect->put_farewell != NULL)
        conn->dialect->put_farewell(&conn->session, &conn->out, status, text);
    ddpi_conn_put_free(conn, before);
}

void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (!ddpi_conn_serving(conn))
        return;
    conn->denied = status == DDP_E_DENIED;
    conn->at_fault = status != DDP_E_CLOSED;
    ddpi_conn_farewell(conn, status, text);
    ddpi_conn_log_end(conn, text);
    ddpi_conn_linger(conn);
}

void ddpi_conn_deny(struct ddpi_conn *conn, const char *why)
{
    conn->denied = conn->at_fault = conn->paused = true;
    ddpi_conn_log_end(conn, why);
    stop_serving(conn, CONN_DENYING);
    uv_read_stop((uv_stream_t *)&conn->tcp);
    drop_input(conn);
    ddpi_conn_update_deadline(conn, false);
}

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *timer)
{
    static const char *const reasons[] = {
        [DEADLINE_NONE] = "",
        [DEADLINE_HANDSHAKE] = "its greeting was not complete in time",
        [DEADLINE_FRAME] = "it did not finish a request in time",
        [DEADLINE_OUTPUT] = "it does not read its replies",
        [DEADLINE_DENIAL] = "",
        [DEADLINE_LINGER] = "",
    };
    struct ddpi_conn *conn = timer->data;
    conn->at_fault = true;
    if (conn->sm.state == CONN_LINGERING || conn->deadline == DEADLINE_OUTPUT) {
        ddpi_conn_end(conn, reasons[conn->deadline]);
    } else if (conn->sm.state == CONN_DENYING) {
        ddpi_conn_farewell(conn, DDP_E_DENIED, "denied");
        ddpi_conn_linger(conn);
    } else
        ddpi_conn_dismiss(conn, DDP_E_TIMEOUT, reasons[conn->deadline]);
}

static enum deadline wanted_deadline(const struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_LINGERING)
        return DEADLINE_LINGER;
    if (conn->sm.state == CONN_DENYING)
        return DEADLINE_DENIAL;
    if (conn->sm.state == CONN_GREETING)
        return DEADLINE_HANDSHAKE;
    if (conn->paused)
        return DEADLINE_OUTPUT;
    return ddpi_buf_len(&conn->in) > 0 && !conn->held ? DEADLINE_FRAME : DEADLINE_NONE;
}

static uint32_t denial_ms(const struct ddpi_conn *conn)
{
    uint32_t number;
    conn->env->gate.random(&number, sizeof number);
    return DENIAL_MIN_MS + number % (DENIAL_MAX_MS - DENIAL_MIN_MS + 1);
}

void ddpi_conn_update_deadline(struct ddpi_conn *conn, bool progress)
{
    const struct ddpi_conn_limits *limits = &conn->env->limits;
    const uint32_t durations[] = {
        [DEADLINE_NONE] = 0,
        [DEADLINE_HANDSHAKE] = limits->handshake_ms,
        [DEADLINE_FRAME] = limits->frame_ms,
        [DEADLINE_OUTPUT] = limits->output_ms,
        [DEADLINE_DENIAL] = 0,
        [DEADLINE_LINGER] = limits->linger_ms,
    };
    enum deadline wanted = wanted_deadline(conn);
    if (wanted == conn->deadline && !(progress && wanted == DEADLINE_FRAME))
        return;
    conn->deadline = wanted;
    if (wanted == DEADLINE_NONE)
        uv_timer_stop(&conn->timer);
    else
        uv_timer_start(&conn->timer, on_deadline,
                       wanted == DEADLINE_DENIAL ? denial_ms(conn) : durations[wanted], 0);
}
