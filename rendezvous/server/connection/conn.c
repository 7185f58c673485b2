/*
 * conn.c - one connection. Owns its socket, timer and buffers.
 *
 * The happy path: the first byte chooses the dialect, whose handshake opens the connection; then
 * each whole frame becomes a request to the owner, and replies are gathered in `out` until the
 * owner flushes: never before, as what they acknowledge may have to be made durable first.
 *
 * Possible failure modes are:
 *   - nobody knows the first byte, or the dialect objects: the peer is told (where it can be) and
 *     the connection lingers, then closes;
 *   - the peer cannot prove who he is, or a frame is not his: the same, after a random while;
 *   - a handshake or a frame that stays incomplete, output that nobody takes: a deadline ends it;
 *   - the output limit is reached, or memory is short: it ends at once;
 *   - the peer closes or resets: it ends at once, with all that waits for it.
 * None of them touches another connection, and no length that a peer announces is allocated
 * before so many bytes have come.
 */
#include "conn_impl.h"
#include "error.h"
#include "mem.h"
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
    INPUT_MAX = 64 * 1024 * 1024, /* a last bound: the dialects allow no frame as long as this */
    KEEP_EMPTY = 4 * 1024,        /* of a buffer that nothing is in */
    KEEPALIVE_S = 60,
    DENIAL_MIN_MS = 50, /* until a peer that is denied hears of it; */
    DENIAL_MAX_MS = 150,
    SEAL_MAX = 64 * 1024,
};

enum deadline {
    DEADLINE_NONE,
    DEADLINE_HANDSHAKE,
    DEADLINE_FRAME,
    DEADLINE_OUTPUT,
    DEADLINE_DENIAL,
    DEADLINE_LINGER
};

size_t ddpi_conn_queued(const struct ddpi_conn *conn)
{
    return ddpi_buf_len(&conn->out) + ddpi_buf_len(&conn->sealed) +
           uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
}

void ddpi_conn_log_end(const struct ddpi_conn *conn, const char *why)
{
    char host[DDPI_ADDRESS_CHARS];
    if (conn->at_fault && !conn->env->fault(conn->env->owner, conn))
        return;
    ddpi_address_format(&conn->visitor.address, host);
    ddpi_log(conn->env->log, conn->at_fault ? DDPI_LOG_WARN : DDPI_LOG_DEBUG,
             "connection from %s port %u %s: %s", host, conn->visitor.port,
             conn->denied ? "denied" : "closed", why);
}

void ddpi_conn_trim(struct ddpi_buf *buf)
{
    if (ddpi_buf_len(buf) == 0 && buf->size > KEEP_EMPTY)
        ddpi_buf_finish(buf);
}

bool ddpi_conn_count(struct ddpi_conn *conn)
{
    struct ddpi_conn_shared *shared = conn->env->shared;
    /* What replies may take is checked before they are put. */
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
    (void)ddpi_conn_count(conn);
    ddpi_free(conn->refusal);
    ddpi_wipe(&conn->session, sizeof conn->session);
    conn->env->closed(conn->env->owner, conn);
}

/* On to a state in which nobody is served. */
static void leave(struct ddpi_conn *conn, unsigned state)
{
    bool was_serving = ddpi_conn_serving(conn);
    ddpi_sm_move(&conn->sm, state);
    if (was_serving)
        conn->env->gone(conn->env->owner, conn);
}

static void close_handles(struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    leave(conn, CONN_CLOSING);
    uv_close((uv_handle_t *)&conn->tcp, conn_maybe_closed);
    uv_close((uv_handle_t *)&conn->timer, conn_maybe_closed);
}

void ddpi_conn_end(struct ddpi_conn *conn, const char *why)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (ddpi_conn_serving(conn))
        ddpi_conn_log_end(conn, why);
    close_handles(conn);
}

/* --- deadlines --- */

static void tell(struct ddpi_conn *conn, ddp_status status, const char *text);

static void on_deadline(uv_timer_t *timer)
{
    static const char *const reasons[] = {
        [DEADLINE_NONE] = "",
        [DEADLINE_HANDSHAKE] = "its greeting was not complete in time",
        [DEADLINE_FRAME] = "it began a request and did not finish it in time",
        [DEADLINE_OUTPUT] = "it does not read its replies",
        [DEADLINE_DENIAL] = "",
        [DEADLINE_LINGER] = "",
    };
    struct ddpi_conn *conn = timer->data;
    conn->at_fault = true;
    if (conn->sm.state == CONN_LINGERING || conn->deadline == DEADLINE_OUTPUT) {
        ddpi_conn_end(conn, reasons[conn->deadline]);
    } else if (conn->sm.state == CONN_DENYING) {
        tell(conn, DDP_E_DENIED, "denied");
        ddpi_conn_part(conn);
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

/* --- output --- */

static void on_written(uv_write_t *write, int uv_err)
{
    struct ddpi_conn *conn = write->data;
    ddpi_buf_consume(&conn->flight, ddpi_buf_len(&conn->flight));
    ddpi_conn_trim(&conn->flight);
    (void)ddpi_conn_count(conn);
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (uv_err != 0)
        ddpi_conn_end(conn, uv_strerror(uv_err));
    else if (ddpi_buf_len(&conn->out) + ddpi_buf_len(&conn->sealed) > 0)
        conn->env->dirty(conn->env->owner, conn);
    if (conn->paused && ddpi_conn_serving(conn) &&
        ddpi_conn_queued(conn) <= conn->env->limits.output_soft / 2)
        ddpi_conn_resume(conn);
}

static int write_rest(struct ddpi_conn *conn, struct ddpi_buf *rest)
{
    struct ddpi_buf emptied = conn->flight;
    conn->flight = *rest;
    *rest = emptied;
    size_t len = ddpi_buf_len(&conn->flight);
    uv_buf_t bytes = {.base = (char *)conn->flight.data + conn->flight.head, .len = len};
    conn->write.data = conn;
    return uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &bytes, 1, on_written);
}

/* Only with a write on its way, whose end resumes. */
static void pause_reading(struct ddpi_conn *conn)
{
    conn->paused = true;
    uv_read_stop((uv_stream_t *)&conn->tcp);
    ddpi_conn_update_deadline(conn, false);
}

/* Of what is queued, that which is to leave next; with TLS no more of it is sealed at once than is
 * likely to leave. After the end of TLS there is nobody to say anything to. */
static int next_output(struct ddpi_conn *conn, struct ddpi_buf **ret)
{
    *ret = conn->tls != NULL ? &conn->sealed : &conn->out;
    if (conn->tls == NULL || ddpi_buf_len(&conn->sealed) > 0 || ddpi_buf_len(&conn->out) == 0)
        return 0;
    struct ddp_error err;
    conn->sealed.limit = 2 * SEAL_MAX; /* what is sealed has passed the limits already */
    ddp_status status = ddpi_tls_put(conn->tls, &conn->out, SEAL_MAX, &conn->sealed, &err);
    if (status == DDP_E_CLOSED)
        ddpi_buf_consume(&conn->out, ddpi_buf_len(&conn->out));
    return status == DDP_E_NOMEM ? UV_ENOMEM : 0;
}

/* Begin to write what is queued, unless a write is on its way already; its end goes on. It is also
 * what ends a pause, so then there must be one. */
static int write_queue(struct ddpi_conn *conn)
{
    struct ddpi_buf *next;
    int uv_err = 0;
    while (ddpi_buf_len(&conn->flight) == 0 && (uv_err = next_output(conn, &next)) == 0 &&
           ddpi_buf_len(next) > 0) {
        if (conn->paused)
            return write_rest(conn, next);
        uv_buf_t bytes = {.base = (char *)next->data + next->head, .len = ddpi_buf_len(next)};
        int sent = uv_try_write((uv_stream_t *)&conn->tcp, &bytes, 1);
        if (sent < 0 && sent != UV_EAGAIN)
            return sent;
        if (sent > 0)
            ddpi_buf_consume(next, (size_t)sent);
        if (ddpi_buf_len(next) > 0)
            return write_rest(conn, next);
    }
    ddpi_conn_trim(&conn->out);
    ddpi_conn_trim(&conn->sealed);
    (void)ddpi_conn_count(conn);
    return uv_err;
}

static void on_shutdown(uv_shutdown_t *shutdown, int uv_err)
{
    (void)uv_err; /* the peer's EOF or the deadline ends the lingering */
    struct ddpi_conn *conn = shutdown->handle->data;
    if (conn->peer_done)
        close_handles(conn);
}

/* The last of what it had to say is with libuv: say that nothing more comes. */
static void hang_up(struct ddpi_conn *conn)
{
    if (conn->hung_up || ddpi_buf_len(&conn->out) + ddpi_buf_len(&conn->sealed) > 0)
        return;
    conn->hung_up = true;
    if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) != 0)
        close_handles(conn);
}

void ddpi_conn_flush(struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_CLOSING || conn->sm.state == CONN_DENYING)
        return;
    if (conn->overflow) {
        conn->at_fault = true;
        ddpi_conn_end(conn, conn->overloaded
                                ? "all connections together have as many replies waiting to be "
                                  "read as they may"
                                : "too many of its replies are waiting to be read");
        return;
    }
    int uv_err = write_queue(conn);
    if (uv_err != 0)
        ddpi_conn_end(conn, uv_strerror(uv_err));
    else if (conn->sm.state == CONN_LINGERING)
        hang_up(conn);
    else if (!conn->paused && ddpi_conn_serving(conn) &&
             ddpi_conn_queued(conn) > conn->env->limits.output_soft)
        pause_reading(conn);
}

void ddpi_conn_reply(struct ddpi_conn *conn, const struct ddpi_message *reply)
{
    if (!ddpi_conn_serving(conn) || conn->overflow || conn->refused)
        return;
    size_t hard = conn->env->limits.output_hard;
    size_t room = ddpi_budget_room(&conn->env->shared->output, conn->out_held);
    size_t most = room < hard ? room : hard;
    size_t at_libuv = uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
    conn->out.limit = most > at_libuv ? most - at_libuv : 0;
    ddp_status status = conn->dialect->put_reply(&conn->session, &conn->out, reply);
    (void)ddpi_conn_count(conn);
    conn->overflow = status == DDP_E_NOMEM;
    conn->overloaded = conn->overflow && room < hard;
    conn->refused = status == DDP_E_CLOSED;
    if (conn->refused)
        conn->refusal = ddpi_strndup(reply->text.data, reply->text.len);
    conn->env->dirty(conn->env->owner, conn);
}

static void drop_input(struct ddpi_conn *conn)
{
    ddpi_buf_finish(&conn->in);
    (void)ddpi_conn_count(conn);
}

void ddpi_conn_part(struct ddpi_conn *conn)
{
    leave(conn, CONN_LINGERING);
    drop_input(conn);
    ddpi_conn_update_deadline(conn, false);
    conn->env->dirty(conn->env->owner, conn);
    if ((conn->paused || conn->held) &&
        uv_read_start((uv_stream_t *)&conn->tcp, ddpi_conn_on_alloc, ddpi_conn_on_read) != 0)
        close_handles(conn);
}

static void tell(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (conn->dialect != NULL)
        conn->dialect->put_farewell(&conn->session, &conn->out, status, text);
}

void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (!ddpi_conn_serving(conn))
        return;
    conn->denied = status == DDP_E_DENIED;
    conn->at_fault = status != DDP_E_CLOSED;
    tell(conn, status, text);
    ddpi_conn_log_end(conn, text);
    ddpi_conn_part(conn);
}

void ddpi_conn_deny(struct ddpi_conn *conn, const char *why)
{
    conn->denied = conn->at_fault = conn->paused = true;
    ddpi_conn_log_end(conn, why);
    leave(conn, CONN_DENYING);
    uv_read_stop((uv_stream_t *)&conn->tcp);
    drop_input(conn);
    ddpi_conn_update_deadline(conn, false);
}

/* --- life --- */

static ddp_status admit(struct ddpi_session *session, struct ddp_error *err)
{
    struct ddpi_conn *conn = ddpi_container_of(session, struct ddpi_conn, session);
    return conn->env->admit(conn->env->owner, conn, err);
}

static void init_buffers(struct ddpi_conn *conn)
{
    ddpi_buf_init(&conn->in, INPUT_MAX);
    ddpi_buf_init(&conn->out, conn->env->limits.output_hard);
    ddpi_buf_init(&conn->sealed, 2 * SEAL_MAX);
    ddpi_buf_init(&conn->flight, conn->env->limits.output_hard);
}

static int start(struct ddpi_conn *conn, int fd)
{
    int uv_err = uv_tcp_open(&conn->tcp, fd);
    if (uv_err != 0) {
        close(fd);
        return uv_err;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1, KEEPALIVE_S);
    ddpi_conn_update_deadline(conn, false);
    return uv_read_start((uv_stream_t *)&conn->tcp, ddpi_conn_on_alloc, ddpi_conn_on_read);
}

ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd,
                            const struct ddpi_visitor *visitor, struct ddpi_conn **ret,
                            struct ddp_error *err)
{
    struct ddpi_conn *conn = ddpi_calloc(1, sizeof(*conn));
    if (conn == NULL) {
        close(fd);
        return ddpi_error_nomem(err, sizeof(*conn));
    }
    conn->env = env;
    conn->session.limits = &env->kv_limits;
    conn->session.admit = admit;
    conn->session.gate = &env->gate;
    conn->session.incarnation = env->incarnation;
    ddpi_sm_init(&conn->sm, &ddpi_conn_sm);
    ddpi_kv_client_init(&conn->client);
    ddpi_list_init(&conn->of_server);
    ddpi_list_init(&conn->of_half_open);
    ddpi_list_init(&conn->of_dirty);
    ddpi_list_init(&conn->of_held);
    init_buffers(conn);
    conn->visitor = *visitor;
    conn->session.must_prove = visitor->must_prove;
    conn->session.stranger = visitor->stranger;
    conn->session.needs_tls = conn->env->tls != NULL && visitor->elsewhere;
    uv_tcp_init(env->loop, &conn->tcp); /* these two only fill in the handle */
    uv_timer_init(env->loop, &conn->timer);
    conn->tcp.data = conn->timer.data = conn;
    conn->handles = 2;
    *ret = conn;
    int uv_err = start(conn, fd);
    return uv_err == 0 ? DDP_OK : ddpi_uv_error(err, uv_err, "cannot serve a new connection");
}

void ddpi_conn_close(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (ddpi_conn_serving(conn)) {
        tell(conn, status, text);
        ddpi_conn_flush(conn);
    }
    close_handles(conn);
}

void ddpi_conn_drop(struct ddpi_conn *conn, const char *why)
{
    ddpi_buf_consume(&conn->out, ddpi_buf_len(&conn->out));
    ddpi_conn_end(conn, why);
}

void ddpi_conn_local_host(const struct ddpi_conn *conn, char *text, size_t size)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    int len = sizeof address;
    *text = '\0';
    if (uv_tcp_getsockname(&conn->tcp, (struct sockaddr *)&address, &len) == 0)
        (void)getnameinfo((struct sockaddr *)&address, (socklen_t)len, text, (socklen_t)size, NULL,
                          0, NI_NUMERICHOST);
}
