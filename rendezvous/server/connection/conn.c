/*
 * conn.c - see conn.h. First how a connection ends, then the way of the bytes: the first byte
 * selects the dialect, whose handshake opens the connection; then each complete frame becomes a
 * request to the owner. Replies wait in the stream until the owner says that they may leave, and
 * flushes: the changes that they acknowledge may have to be made durable first.
 *
 * Possible failure modes are:
 *   - no dialect has the first byte, or the dialect refuses: the peer is told so if possible, and
 *     the connection lingers, then closes;
 *   - the peer fails to authenticate, or a frame fails its integrity check: the same, after a
 *     random delay;
 *   - a handshake or a frame stays incomplete, or output is not read: a deadline ends the
 *     connection;
 *   - the output limit is reached, or memory is short: it ends at once;
 *   - the peer closes or resets: it ends at once, with all its waiting requests.
 *
 * None of them touches another connection.
 */
#include "conn.h"
#include "error.h"
#include "mem.h"
#include "tls_key.h"
#include "uv_error.h"

#include <unistd.h>

DDPI_SM_DEFINE(ddpi_conn, CONN_STATES);

const struct ddpi_conn_limits ddpi_conn_limits_default = {
    .handshake_ms = 5000,
    .frame_ms = 60000,
    .output_ms = 60000,
    .linger_ms = 1000,
    .output_soft = 8 * 1024 * 1024,
    .output_hard = 32 * 1024 * 1024,
};

enum {
    DENIAL_MIN_MS = 50, /* until a denied peer is told so */
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

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *timer);

static void set_deadline(struct ddpi_conn *conn, enum deadline deadline, uint32_t ms)
{
    conn->deadline = deadline;
    uv_timer_start(&conn->timer, on_deadline, ms, 0);
}

/* The deadline while requests are served. @progress: a frame was completed, so the frame deadline
 * starts again. */
static void update_deadline(struct ddpi_conn *conn, bool progress)
{
    const struct ddpi_conn_limits *limits = &conn->env->limits;
    const bool partial = ddpi_stream_input(&conn->stream).len > 0;
    if (conn->sm.state == CONN_GREETING) {
        if (conn->deadline != DEADLINE_HANDSHAKE)
            set_deadline(conn, DEADLINE_HANDSHAKE, limits->handshake_ms);
    } else if (conn->stopped & DDPI_STOPPED_BY_OUTPUT) {
        if (conn->deadline != DEADLINE_OUTPUT)
            set_deadline(conn, DEADLINE_OUTPUT, limits->output_ms);
    } else if (conn->stopped == 0 && partial) {
        if (conn->deadline != DEADLINE_FRAME || progress)
            set_deadline(conn, DEADLINE_FRAME, limits->frame_ms);
    } else if (conn->deadline != DEADLINE_NONE) {
        conn->deadline = DEADLINE_NONE;
        uv_timer_stop(&conn->timer);
    }
}

/* ---- the end ---- */

static void log_end(const struct ddpi_conn *conn, const char *why)
{
    char host[DDPI_ADDRESS_CHARS];
    bool at_fault = conn->fault != DDPI_FAULT_NONE;
    if (at_fault && !conn->env->fault(conn->env->owner, conn))
        return;
    ddpi_address_format(&conn->peer.address, host);
    ddpi_log(conn->env->log, at_fault ? DDPI_LOG_WARN : DDPI_LOG_DEBUG,
             "connection from %s port %u %s: %s", host, conn->peer.port,
             conn->fault == DDPI_FAULT_DENIED ? "denied" : "closed", why);
}

/* Move to a state in which no request is served. */
static void stop_serving(struct ddpi_conn *conn, unsigned state)
{
    bool was_serving = ddpi_conn_serving(conn);
    ddpi_sm_move(&conn->sm, state);
    if (was_serving)
        conn->env->gone(conn->env->owner, conn);
}

void ddpi_conn_drop(struct ddpi_conn *conn, const char *why)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (ddpi_conn_serving(conn) && why != NULL)
        log_end(conn, why);
    stop_serving(conn, CONN_CLOSING);
    uv_timer_stop(&conn->timer);
    ddpi_stream_close(&conn->stream);
}

static void end_at_fault(struct ddpi_conn *conn, enum ddpi_conn_fault fault, const char *why)
{
    conn->fault = fault;
    ddpi_conn_drop(conn, why);
}

/* Serve nothing more, send what is queued, then close. */
static void linger(struct ddpi_conn *conn)
{
    stop_serving(conn, CONN_LINGERING);
    set_deadline(conn, DEADLINE_LINGER, conn->env->limits.linger_ms);
    int uv_err = ddpi_stream_discard(&conn->stream);
    conn->env->dirty(conn->env->owner, conn);
    if (uv_err != 0)
        ddpi_conn_drop(conn, NULL);
}

/* Queue the dialect's farewell. */
static void put_farewell(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    size_t before = ddpi_buf_len(&conn->stream.out);
    if (conn->dialect != NULL && conn->dialect->put_farewell != NULL)
        conn->dialect->put_farewell(&conn->dialect_state, &conn->stream.out, status, text);
    ddpi_stream_appended(&conn->stream, before, true);
}

void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (!ddpi_conn_serving(conn))
        return;
    if (conn->fault == DDPI_FAULT_NONE && status != DDP_E_CLOSED)
        conn->fault = status == DDP_E_DENIED ? DDPI_FAULT_DENIED : DDPI_FAULT_RULE;
    put_farewell(conn, status, text);
    log_end(conn, text);
    linger(conn);
}

/* Ignore the peer for a random time, then tell it that it is denied. */
static void deny(struct ddpi_conn *conn, const char *why)
{
    uint32_t number;
    conn->env->gate.random(&number, sizeof number);
    conn->fault = DDPI_FAULT_DENIED;
    log_end(conn, why);
    stop_serving(conn, CONN_DENYING);
    ddpi_stream_drop_input(&conn->stream);
    set_deadline(conn, DEADLINE_DENIAL,
                 DENIAL_MIN_MS + number % (DENIAL_MAX_MS - DENIAL_MIN_MS + 1));
}

static void on_deadline(uv_timer_t *timer)
{
    struct ddpi_conn *conn = timer->data;
    switch (conn->deadline) {
    case DEADLINE_HANDSHAKE:
        ddpi_conn_dismiss(conn, DDP_E_TIMEOUT, "its greeting was not complete in time");
        break;
    case DEADLINE_FRAME:
        ddpi_conn_dismiss(conn, DDP_E_TIMEOUT, "it did not finish a request in time");
        break;
    case DEADLINE_OUTPUT:
        end_at_fault(conn, DDPI_FAULT_RULE, "it does not read its replies");
        break;
    case DEADLINE_DENIAL:
        put_farewell(conn, DDP_E_DENIED, "denied");
        linger(conn);
        break;
    default:
        ddpi_conn_drop(conn, NULL);
    }
}

/* A reply could not be queued. The connection ends here and not in ddpi_conn_reply(), which the
 * owner calls in the middle of a change. */
static bool end_unanswered(struct ddpi_conn *conn)
{
    if (conn->unanswered == DDP_OK)
        return false;
    if (conn->unanswered == DDP_E_CLOSED)
        ddpi_conn_dismiss(conn, DDP_E_CLOSED,
                          conn->inexpressible != NULL ? conn->inexpressible : "no memory");
    else if (conn->unanswered == DDP_E_LIMIT)
        end_at_fault(conn, DDPI_FAULT_OVERLOAD,
                     "the unread replies of all connections have reached --max-output-total");
    else
        end_at_fault(conn, DDPI_FAULT_RULE, "too many of its replies are waiting to be read");
    return true;
}

/* ---- bytes in, requests out ---- */

static bool choose_dialect(struct ddpi_conn *conn, uint8_t first_byte)
{
    static const struct ddpi_dialect *const dialects[] = {&ddpi_dialect_native,
                                                          &ddpi_dialect_tcpstore};
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (dialects[i]->first_byte == first_byte)
            conn->dialect = dialects[i];
    if (conn->dialect == NULL) {
        ddpi_conn_dismiss(conn, DDP_E_PROTOCOL, "its first byte begins no protocol of this server");
        return false;
    }
    conn->client.tcpstore = conn->dialect->tcpstore;
    return true;
}

/* Announce the requests that @bytes begin with, if there are several; returns their length. */
static size_t look_ahead(struct ddpi_conn *conn, const uint8_t *bytes, size_t len)
{
    struct ddpi_bytes keys[DDPI_KV_AHEAD];
    const struct ddpi_dialect *dialect = conn->dialect;
    size_t count = 0, seen = 0, size = 1;
    if (dialect->peek == NULL)
        return len;
    while (count < DDPI_KV_AHEAD && seen < len && size > 0) {
        size = dialect->peek(&conn->dialect_state, bytes + seen, len - seen, &keys[count]);
        count += size > 0;
        seen += size;
    }
    if (count > 1)
        conn->env->ahead(conn->env->owner, conn, keys, count);
    return seen;
}

static bool has_much_output(const struct ddpi_conn *conn)
{
    return ddpi_stream_queued(&conn->stream) > conn->env->limits.output_soft;
}

static void stop_reading(struct ddpi_conn *conn, enum ddpi_conn_stop why)
{
    conn->stopped |= why;
    ddpi_stream_stop(&conn->stream);
}

/* Whether the next frame may be served. */
static bool may_serve(struct ddpi_conn *conn)
{
    if (!ddpi_conn_serving(conn) || end_unanswered(conn))
        return false;
    if (has_much_output(conn))
        conn->env->settle(conn->env->owner);
    return conn->stopped == 0 && ddpi_conn_serving(conn);
}

/* Serve the frame that @bytes begin with. */
static void serve_frame(struct ddpi_conn *conn, const uint8_t *bytes, size_t len,
                        struct ddpi_dialect_step *ret_step)
{
    struct ddp_error err;
    size_t before = ddpi_buf_len(&conn->stream.out);
    ddp_status status =
        conn->dialect->next(&conn->dialect_state, bytes, len, &conn->stream.out, ret_step, &err);
    ddpi_stream_appended(&conn->stream, before, true);
    if (conn->dialect_state.open && conn->sm.state == CONN_GREETING)
        ddpi_sm_move(&conn->sm, CONN_OPEN);
    switch (ret_step->kind) {
    case DDPI_DIALECT_MORE:
        return;
    case DDPI_DIALECT_CLOSE:
        ddpi_conn_dismiss(conn, status, err.msg);
        return;
    case DDPI_DIALECT_DENIED:
        deny(conn, err.msg);
        return;
    case DDPI_DIALECT_ANSWERED:
        conn->env->dirty(conn->env->owner, conn);
        return;
    case DDPI_DIALECT_REQUEST:
        if (!conn->env->request(conn->env->owner, conn, &ret_step->request) &&
            ddpi_conn_serving(conn))
            stop_reading(conn, DDPI_STOPPED_BY_OWNER);
    }
}

/* Serve the frames that have arrived. */
static void serve(struct ddpi_conn *conn)
{
    struct ddpi_bytes input = ddpi_stream_input(&conn->stream);
    const uint8_t *bytes = input.data;
    size_t used = 0, announced = 0;
    struct ddpi_dialect_step step = {0};
    if (input.len > 0 && conn->dialect == NULL && !choose_dialect(conn, *bytes))
        return;
    while (used < input.len && may_serve(conn)) {
        if (used >= announced)
            announced = used + look_ahead(conn, bytes + used, input.len - used);
        serve_frame(conn, bytes + used, input.len - used, &step);
        if (step.kind == DDPI_DIALECT_MORE)
            break;
        used += step.used;
    }
    if (!ddpi_conn_serving(conn) || end_unanswered(conn))
        return;
    ddpi_stream_consume(&conn->stream, used, step.need);
    update_deadline(conn, used > 0);
}

static void resume(struct ddpi_conn *conn, enum ddpi_conn_stop why)
{
    conn->stopped &= ~(unsigned)why;
    if (!ddpi_conn_serving(conn))
        return;
    update_deadline(conn, false); /* a pause that follows at once has its own deadline */
    if (conn->stopped != 0)
        return;
    serve(conn);
    int uv_err =
        conn->stopped == 0 && ddpi_conn_serving(conn) ? ddpi_stream_read(&conn->stream) : 0;
    if (uv_err != 0)
        ddpi_conn_drop(conn, uv_strerror(uv_err));
}

void ddpi_conn_release(struct ddpi_conn *conn)
{
    resume(conn, DDPI_STOPPED_BY_OWNER);
}

/* ---- replies in, bytes out ---- */

/* A session that is renewed is known to have existed, and its renewal changes nothing that is kept,
 * so the answer does not wait for a commit: agents would lose their sessions to a slow one. */
static bool is_renewal(const struct ddpi_message *reply)
{
    return reply->status == DDP_OK &&
           (reply->op == DDPI_OP_SESSION_KEEP || reply->op == DDPI_OP_SESSION_HOLD);
}

void ddpi_conn_reply(struct ddpi_conn *conn, const struct ddpi_message *reply)
{
    struct ddpi_stream *stream = &conn->stream;
    if (!ddpi_conn_serving(conn) || conn->unanswered != DDP_OK)
        return;
    size_t before = ddpi_buf_len(&stream->out);
    bool short_of_budget = ddpi_stream_limit_output(stream, conn->env->limits.output_hard);
    ddp_status status = conn->dialect->put_reply(&conn->dialect_state, &stream->out, reply);
    ddpi_stream_appended(stream, before, is_renewal(reply));
    conn->unanswered = status == DDP_E_NOMEM && short_of_budget ? DDP_E_LIMIT : status;
    if (status == DDP_E_CLOSED)
        conn->inexpressible = ddpi_strndup(reply->text.data, reply->text.len);
    conn->env->dirty(conn->env->owner, conn);
}

void ddpi_conn_flush(struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_CLOSING || conn->sm.state == CONN_DENYING)
        return;
    if (ddpi_conn_serving(conn) && end_unanswered(conn))
        return;
    int uv_err = ddpi_stream_flush(&conn->stream);
    if (uv_err == 0 && conn->sm.state == CONN_LINGERING)
        uv_err = ddpi_stream_shut_down(&conn->stream);
    if (uv_err != 0)
        ddpi_conn_drop(conn, uv_strerror(uv_err));
    if (!ddpi_conn_serving(conn))
        return;
    /* Either a write is in progress, whose end resumes reading, or output is withheld, which is
     * written later. */
    if (!(conn->stopped & DDPI_STOPPED_BY_OUTPUT) && has_much_output(conn)) {
        stop_reading(conn, DDPI_STOPPED_BY_OUTPUT);
        update_deadline(conn, false);
    }
}

/* ---- what the stream reports ---- */

static struct ddpi_conn *conn_of(struct ddpi_stream *stream)
{
    return ddpi_container_of(stream, struct ddpi_conn, stream);
}

static bool find_tls_key(void *ctx, const uint8_t *name, size_t len,
                         uint8_t ret_secret[DDPI_TLS_KEY_SIZE])
{
    const struct ddpi_conn_env *env = conn_of(ctx)->env;
    return ddpi_tls_key_find(env->gate.token, env->incarnation, name, len, ret_secret);
}

static void on_input(struct ddpi_stream *stream)
{
    struct ddpi_conn *conn = conn_of(stream);
    if (stream->tls != NULL && ddpi_stream_unsent(stream) > 0)
        conn->env->dirty(conn->env->owner, conn);
    if (stream->tls != NULL && ddpi_tls_is_open(stream->tls))
        conn->dialect_state.needs_tls = false;
    serve(conn);
}

static void on_written(struct ddpi_stream *stream)
{
    struct ddpi_conn *conn = conn_of(stream);
    if (ddpi_stream_unsent(stream) > 0)
        conn->env->dirty(conn->env->owner, conn);
    if ((conn->stopped & DDPI_STOPPED_BY_OUTPUT) &&
        ddpi_stream_queued(stream) <= conn->env->limits.output_soft / 2)
        resume(conn, DDPI_STOPPED_BY_OUTPUT);
}

static void on_ended(struct ddpi_stream *stream)
{
    static const char why[] = "the peer closed it";
    struct ddpi_conn *conn = conn_of(stream);
    if (!ddpi_conn_serving(conn) || ddpi_stream_queued(stream) == 0) {
        ddpi_conn_drop(conn, why);
        return;
    }
    log_end(conn, why); /* it may still read the replies */
    linger(conn);
}

static void on_refused(struct ddpi_stream *stream, ddp_status status, const char *why)
{
    struct ddpi_conn *conn = conn_of(stream);
    if (!ddpi_conn_serving(conn))
        return;
    if (status == DDP_E_LIMIT)
        conn->fault = DDPI_FAULT_OVERLOAD;
    if (status == DDP_E_DENIED)
        deny(conn, why);
    else
        ddpi_conn_dismiss(conn, status, why);
}

static void on_lost(struct ddpi_stream *stream, const char *why)
{
    ddpi_conn_drop(conn_of(stream), why);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct ddpi_conn *conn = timer->data;
    ddpi_free(conn->inexpressible);
    ddpi_wipe(&conn->dialect_state, sizeof conn->dialect_state);
    conn->env->closed(conn->env->owner, conn);
}

static void on_stream_closed(struct ddpi_stream *stream)
{
    uv_close((uv_handle_t *)&conn_of(stream)->timer, on_timer_closed);
}

/* ---- opening and closing ---- */

static ddp_status admit(struct ddpi_dialect_state *state, struct ddp_error *err)
{
    struct ddpi_conn *conn = ddpi_container_of(state, struct ddpi_conn, dialect_state);
    return conn->env->admit(conn->env->owner, conn, err);
}

ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd,
                            const struct ddpi_conn_peer *peer, struct ddpi_conn **ret,
                            struct ddp_error *err)
{
    static const struct ddpi_stream_hooks hooks = {.find_key = find_tls_key,
                                                   .input = on_input,
                                                   .written = on_written,
                                                   .ended = on_ended,
                                                   .refused = on_refused,
                                                   .lost = on_lost,
                                                   .closed = on_stream_closed};
    struct ddpi_conn *conn = ddpi_calloc(1, sizeof(*conn));
    if (conn == NULL) {
        close(fd);
        return ddpi_error_nomem(err, sizeof(*conn));
    }
    *ret = conn;
    conn->env = env;
    conn->peer = *peer;
    conn->dialect_state = (struct ddpi_dialect_state){
        .limits = &env->kv_limits,
        .gate = &env->gate,
        .incarnation = env->incarnation,
        .must_authenticate = peer->must_authenticate,
        .other_user = peer->other_user,
        .needs_tls = env->shared->tls != NULL && peer->elsewhere,
        .admit = admit,
    };
    ddpi_sm_init(&conn->sm, &ddpi_conn_sm);
    ddpi_kv_client_init(&conn->client);
    ddpi_list_init(&conn->of_server);
    ddpi_list_init(&conn->of_half_open);
    ddpi_list_init(&conn->of_dirty);
    ddpi_list_init(&conn->of_held);
    uv_timer_init(env->shared->loop, &conn->timer); /* cannot fail */
    conn->timer.data = conn;
    int uv_err = ddpi_stream_open(&conn->stream, env->shared, &hooks, fd);
    (void)ddpi_stream_limit_output(&conn->stream, env->limits.output_hard);
    update_deadline(conn, false);
    return uv_err == 0 ? DDP_OK : ddpi_uv_error(err, uv_err, "cannot serve a new connection");
}

void ddpi_conn_close(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (ddpi_conn_serving(conn)) {
        put_farewell(conn, status, text);
        ddpi_conn_flush(conn);
    }
    ddpi_conn_drop(conn, NULL);
}
