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
#include "conn.h"

#include "error.h"
#include "mem.h"
#include "uvx.h"

#include <unistd.h>

#define CONN_STATES(X)                                                                     \
    X(CONN, GREETING,                                                                      \
      DDPI_SM_TO(CONN_OPEN) | DDPI_SM_TO(CONN_DENYING) | DDPI_SM_TO(CONN_LINGERING) |      \
          DDPI_SM_TO(CONN_CLOSING),                                                        \
      DDPI_SM_INITIAL)                                                                     \
    X(CONN, OPEN,                                                                          \
      DDPI_SM_TO(CONN_DENYING) | DDPI_SM_TO(CONN_LINGERING) | DDPI_SM_TO(CONN_CLOSING), 0) \
    X(CONN, DENYING, DDPI_SM_TO(CONN_LINGERING) | DDPI_SM_TO(CONN_CLOSING), 0)             \
    X(CONN, LINGERING, DDPI_SM_TO(CONN_CLOSING), 0)                                        \
    X(CONN, CLOSING, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(ddpi_conn, CONN_STATES);
DDPI_SM_DEFINE(ddpi_conn, CONN_STATES);

static const struct ddpi_dialect *const dialects[] = {&ddpi_dialect_native, &ddpi_dialect_tcpstore};

const struct ddpi_conn_limits ddpi_conn_limits_default = {
    .handshake_ms = 5000,
    .frame_ms = 60000,
    .output_ms = 60000,
    .linger_ms = 1000,
    .output_soft = 8 * 1024 * 1024,
    .output_hard = 32 * 1024 * 1024,
};

enum {
    READ_AHEAD = 16 * 1024,
    READ_MAX = 256 * 1024,
    INPUT_MAX = 64 * 1024 * 1024, /* a last bound: the dialects allow no frame as long as this */
    KEEPALIVE_S = 60,
    DENIAL_MIN_MS = 50, /* until a peer that is denied hears of it; */
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

static bool serving(const struct ddpi_conn *conn)
{
    return conn->sm.state == CONN_GREETING || conn->sm.state == CONN_OPEN;
}

size_t ddpi_conn_queued(const struct ddpi_conn *conn)
{
    return ddpi_buf_len(&conn->out) +
           uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
}

static void log_end(const struct ddpi_conn *conn, const char *why)
{
    char host[DDPI_ADDRESS_CHARS];
    if (conn->denied && !conn->env->denied(conn->env->owner))
        return;
    ddpi_address_format(&conn->address, host);
    ddpi_log(conn->env->log, conn->at_fault ? DDPI_LOG_WARN : DDPI_LOG_DEBUG,
             "connection from %s port %u %s: %s", host, conn->port,
             conn->denied ? "denied" : "closed", why);
}

static void conn_maybe_closed(uv_handle_t *handle)
{
    struct ddpi_conn *conn = handle->data;
    if (--conn->handles > 0)
        return;
    ddpi_buf_finish(&conn->in);
    ddpi_buf_finish(&conn->out);
    ddpi_buf_finish(&conn->flight);
    ddpi_free(conn->refusal);
    ddpi_wipe(&conn->session, sizeof conn->session);
    conn->env->closed(conn->env->owner, conn);
}

/* On to a state in which nobody is served. */
static void leave(struct ddpi_conn *conn, unsigned state)
{
    bool was_serving = serving(conn);
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

static void end(struct ddpi_conn *conn, const char *why)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (serving(conn))
        log_end(conn, why);
    close_handles(conn);
}

/* --- deadlines --- */

static void part(struct ddpi_conn *conn);
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
        end(conn, reasons[conn->deadline]);
    } else if (conn->sm.state == CONN_DENYING) {
        tell(conn, DDP_E_DENIED, "denied");
        part(conn);
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
    return ddpi_buf_len(&conn->in) > 0 ? DEADLINE_FRAME : DEADLINE_NONE;
}

static uint32_t denial_ms(const struct ddpi_conn *conn)
{
    uint32_t number;
    conn->env->gate.random(&number, sizeof number);
    return DENIAL_MIN_MS + number % (DENIAL_MAX_MS - DENIAL_MIN_MS + 1);
}

/* @progress: a frame was completed, so that another one is half there now. */
static void update_deadline(struct ddpi_conn *conn, bool progress)
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

static void resume(struct ddpi_conn *conn);
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret);
static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf);

static void on_written(uv_write_t *write, int uv_err)
{
    struct ddpi_conn *conn = write->data;
    ddpi_buf_consume(&conn->flight, ddpi_buf_len(&conn->flight));
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (uv_err != 0)
        end(conn, uv_strerror(uv_err));
    else if (ddpi_buf_len(&conn->out) > 0)
        conn->env->dirty(conn->env->owner, conn);
    if (conn->paused && serving(conn) &&
        ddpi_conn_queued(conn) <= conn->env->limits.output_soft / 2)
        resume(conn);
}

static int write_rest(struct ddpi_conn *conn)
{
    struct ddpi_buf emptied = conn->flight;
    conn->flight = conn->out;
    conn->out = emptied;
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
    update_deadline(conn, false);
}

/* Begin to write what is queued, unless a write is on its way already; its end goes on. It is also
 * what ends a pause, so then there must be one. */
static int write_queue(struct ddpi_conn *conn)
{
    size_t len = ddpi_buf_len(&conn->out);
    if (len == 0 || ddpi_buf_len(&conn->flight) > 0)
        return 0;
    if (conn->paused)
        return write_rest(conn);
    uv_buf_t bytes = {.base = (char *)conn->out.data + conn->out.head, .len = len};
    int sent = uv_try_write((uv_stream_t *)&conn->tcp, &bytes, 1);
    if (sent < 0 && sent != UV_EAGAIN)
        return sent;
    if (sent > 0)
        ddpi_buf_consume(&conn->out, (size_t)sent);
    return ddpi_buf_len(&conn->out) > 0 ? write_rest(conn) : 0;
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
    if (conn->hung_up || ddpi_buf_len(&conn->out) > 0)
        return;
    conn->hung_up = true;
    if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) != 0)
        close_handles(conn);
}

void ddpi_conn_flush(struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_CLOSING)
        return;
    if (conn->overflow) {
        conn->at_fault = true;
        end(conn, "too many of its replies are waiting to be read");
        return;
    }
    int uv_err = write_queue(conn);
    if (uv_err != 0)
        end(conn, uv_strerror(uv_err));
    else if (conn->sm.state == CONN_LINGERING)
        hang_up(conn);
    else if (!conn->paused && serving(conn) &&
             ddpi_conn_queued(conn) > conn->env->limits.output_soft)
        pause_reading(conn);
}

void ddpi_conn_reply(struct ddpi_conn *conn, const struct ddpi_message *reply)
{
    if (!serving(conn) || conn->overflow || conn->refused)
        return;
    size_t hard = conn->env->limits.output_hard;
    size_t at_libuv = uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
    conn->out.limit = hard > at_libuv ? hard - at_libuv : 0;
    ddp_status status = conn->dialect->put_reply(&conn->session, &conn->out, reply);
    conn->overflow = status == DDP_E_NOMEM;
    conn->refused = status == DDP_E_CLOSED;
    if (conn->refused)
        conn->refusal = ddpi_strndup(reply->text.data, reply->text.len);
    conn->env->dirty(conn->env->owner, conn);
}

static void part(struct ddpi_conn *conn)
{
    leave(conn, CONN_LINGERING);
    ddpi_buf_consume(&conn->in, ddpi_buf_len(&conn->in));
    update_deadline(conn, false);
    conn->env->dirty(conn->env->owner, conn);
    if (conn->paused && uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) != 0)
        close_handles(conn);
}

static void tell(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (conn->dialect != NULL)
        conn->dialect->put_farewell(&conn->session, &conn->out, status, text);
}

void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text)
{
    if (!serving(conn))
        return;
    conn->denied = status == DDP_E_DENIED;
    conn->at_fault = status != DDP_E_CLOSED;
    tell(conn, status, text);
    log_end(conn, text);
    part(conn);
}

/* Say nothing and hear nothing for a while; then part. */
static void deny(struct ddpi_conn *conn, const char *why)
{
    conn->denied = conn->at_fault = conn->paused = true;
    log_end(conn, why);
    leave(conn, CONN_DENYING);
    uv_read_stop((uv_stream_t *)&conn->tcp);
    ddpi_buf_consume(&conn->in, ddpi_buf_len(&conn->in));
    update_deadline(conn, false);
}

/* --- input --- */

static bool choose_dialect(struct ddpi_conn *conn, uint8_t first_byte)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        if (dialects[i]->first_byte != first_byte)
            continue;
        conn->dialect = dialects[i];
        conn->client.tcpstore = dialects[i]->tcpstore;
        return true;
    }
    ddpi_conn_dismiss(conn, DDP_E_PROTOCOL, "its first byte begins no protocol spoken here");
    return false;
}

static void take_step(struct ddpi_conn *conn, const struct ddpi_step *step)
{
    if (conn->session.open && conn->sm.state == CONN_GREETING)
        ddpi_sm_move(&conn->sm, CONN_OPEN);
    if (step->kind == DDPI_STEP_REQUEST)
        conn->env->request(conn->env->owner, conn, &step->request);
    else
        conn->env->dirty(conn->env->owner, conn);
}

/* Announce the requests that @bytes begin with; returns how many bytes they have. One alone is not
 * worth it. */
static size_t look_ahead(struct ddpi_conn *conn, const uint8_t *bytes, size_t len)
{
    struct ddpi_bytes keys[DDPI_KV_AHEAD];
    size_t count = 0, seen = 0, size = 1;
    if (conn->dialect->peek == NULL)
        return len;
    while (count < DDPI_KV_AHEAD && seen < len && size > 0) {
        size = conn->dialect->peek(&conn->session, bytes + seen, len - seen, &keys[count]);
        count += size > 0;
        seen += size;
    }
    if (count > 1)
        conn->env->ahead(conn->env->owner, conn, keys, count);
    return seen;
}

/* Serve the frames that @bytes begin with; returns how many bytes are done with. */
static size_t serve(struct ddpi_conn *conn, const uint8_t *bytes, size_t len)
{
    size_t used = 0, announced = 0;
    conn->in_need = 0;
    if (conn->dialect == NULL && !choose_dialect(conn, bytes[0]))
        return len;
    struct ddp_error err;
    while (used < len && serving(conn) && !conn->overflow) {
        if (ddpi_conn_queued(conn) > conn->env->limits.output_soft)
            conn->env->settle(conn->env->owner);
        if (conn->paused || !serving(conn))
            break;
        if (used >= announced)
            announced = used + look_ahead(conn, bytes + used, len - used);
        struct ddpi_step step;
        ddp_status status =
            conn->dialect->next(&conn->session, bytes + used, len - used, &conn->out, &step, &err);
        if (step.kind == DDPI_STEP_CLOSE) {
            ddpi_conn_dismiss(conn, status, err.msg);
            return len;
        }
        if (step.kind == DDPI_STEP_DENIED) {
            deny(conn, err.msg);
            return len;
        }
        conn->in_need = step.need;
        if (step.kind == DDPI_STEP_MORE)
            break;
        take_step(conn, &step);
        used += step.used;
        if (conn->refused) {
            ddpi_conn_dismiss(conn, DDP_E_CLOSED,
                              conn->refusal != NULL ? conn->refusal : "no memory");
            return len;
        }
    }
    return used;
}

/* Room for the rest of the frame that is there, but not for more than the peer has shown to be
 * willing to send: what it announces is not what it is given. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct ddpi_conn *conn = handle->data;
    size_t have = ddpi_buf_len(&conn->in);
    if (have == 0 || !serving(conn)) {
        *ret = uv_buf_init(conn->env->scratch, (unsigned)conn->env->scratch_size);
        return;
    }
    size_t rest = conn->in_need > have ? conn->in_need - have : READ_AHEAD;
    size_t room = rest < READ_AHEAD ? rest : have < READ_AHEAD ? READ_AHEAD : have;
    room = room < rest ? room : rest;
    room = room < READ_MAX ? room : READ_MAX;
    char *base = (char *)ddpi_buf_reserve(&conn->in, room);
    *ret = uv_buf_init(base, base != NULL ? (unsigned)room : 0);
}

static bool serve_input(struct ddpi_conn *conn, const uv_buf_t *buf, size_t len)
{
    size_t used;
    if (buf->base == conn->env->scratch) {
        used = serve(conn, (const uint8_t *)buf->base, len);
        if (serving(conn) && !ddpi_buf_append(&conn->in, buf->base + used, len - used))
            end(conn, "no memory for its request");
    } else {
        ddpi_buf_added(&conn->in, len);
        used = serve(conn, ddpi_buf_head(&conn->in), ddpi_buf_len(&conn->in));
        if (serving(conn))
            ddpi_buf_consume(&conn->in, used);
    }
    return used > 0;
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct ddpi_conn *conn = stream->data;
    if (nread == 0 || conn->sm.state == CONN_CLOSING)
        return;
    if (nread == UV_EOF && serving(conn) && ddpi_conn_queued(conn) > 0) {
        conn->peer_done = true; /* it may want the replies all the same */
        log_end(conn, "the peer closed it");
        part(conn);
    } else if (nread < 0) {
        end(conn, nread == UV_EOF ? "the peer closed it" : uv_strerror((int)nread));
    } else if (serving(conn)) {
        bool progress = serve_input(conn, buf, (size_t)nread);
        if (serving(conn))
            update_deadline(conn, progress);
    }
}

/* Output has left: serve what came in meanwhile, and read on. */
static void resume(struct ddpi_conn *conn)
{
    conn->paused = false;
    update_deadline(conn, false); /* a pause that follows at once is a new one */
    if (ddpi_buf_len(&conn->in) > 0) {
        size_t used = serve(conn, ddpi_buf_head(&conn->in), ddpi_buf_len(&conn->in));
        if (serving(conn))
            ddpi_buf_consume(&conn->in, used);
    }
    if (serving(conn)) {
        update_deadline(conn, true);
        int uv_err = conn->paused ? 0 : uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
        if (uv_err != 0)
            end(conn, uv_strerror(uv_err));
    }
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
    ddpi_buf_init(&conn->flight, conn->env->limits.output_hard);
}

/* Who is at the other end, and what that asks of him. One who has gone already is nobody. */
static void look_at_peer(struct ddpi_conn *conn)
{
    const struct ddpi_gate *gate = &conn->env->gate;
    struct sockaddr_storage name = {0};
    int len = sizeof name;
    const struct sockaddr *peer = (const struct sockaddr *)&name;
    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&name, &len) == 0) {
        conn->address = ddpi_address_of(peer);
        conn->port = ddpi_address_port(peer);
    }
    conn->session.must_prove =
        !gate->open_to_all && !(gate->open_to_loopback && ddpi_address_is_loopback(&conn->address));
}

static int start(struct ddpi_conn *conn, int fd)
{
    int uv_err = uv_tcp_open(&conn->tcp, fd);
    if (uv_err != 0) {
        close(fd);
        return uv_err;
    }
    look_at_peer(conn);
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1, KEEPALIVE_S);
    update_deadline(conn, false);
    return uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd, struct ddpi_conn **ret,
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
    ddpi_list_init(&conn->of_dirty);
    init_buffers(conn);
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
    if (serving(conn)) {
        tell(conn, status, text);
        ddpi_conn_flush(conn);
    }
    close_handles(conn);
}

void ddpi_conn_drop(struct ddpi_conn *conn, const char *why)
{
    ddpi_buf_consume(&conn->out, ddpi_buf_len(&conn->out));
    end(conn, why);
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
