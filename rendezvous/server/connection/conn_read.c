/*
 * conn_read.c - bytes in, requests out: what a connection reads, how much at once, and how it keeps
 * a partial frame.
 *
 * An end of file means that no process holds the peer's end of the connection any more, since a
 * client that gives up a connection and lives on resets it. A reset means less: the peer's kernel
 * also sends one when a process dies with unread input.
 *
 * A peer whose first bytes are a TLS record speaks TLS, and its dialect inside. Until the first
 * record is complete it is kept like any partial frame, so that an unauthenticated peer costs no
 * more. After that, ciphertext is read into the scratch memory and decrypted at once into `in`. An
 * end of file of TLS is not one in good order, since anyone could forge it; it counts as a loss.
 *
 * Each connection reads once in a turn of the loop, so that no peer can keep others from being
 * served. It keeps the bytes that have arrived, and never allocates what was only announced.
 */
#include "conn_impl.h"
#include "tls_key.h"

enum {
    READ_AHEAD = 16 * 1024,
    READ_MAX = 256 * 1024,
};

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

static void take_step(struct ddpi_conn *conn, const struct ddpi_step *step)
{
    if (conn->session.open && conn->sm.state == CONN_GREETING)
        ddpi_sm_move(&conn->sm, CONN_OPEN);
    if (step->kind == DDPI_STEP_REQUEST)
        conn->env->request(conn->env->owner, conn, &step->request);
    else
        conn->env->dirty(conn->env->owner, conn);
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
        size = dialect->peek(&conn->session, bytes + seen, len - seen, &keys[count]);
        count += size > 0;
        seen += size;
    }
    if (count > 1)
        conn->env->ahead(conn->env->owner, conn, keys, count);
    return seen;
}

/* The core has put off a request, or too many changes wait for a commit: the input after it waits,
 * so that requests are served in order and no client has two requests put off. */
static void hold_input(struct ddpi_conn *conn)
{
    conn->held = true;
    uv_read_stop((uv_stream_t *)&conn->tcp);
    conn->env->held(conn->env->owner, conn);
}

/* Serve the frames that @bytes begin with; returns the number of bytes used. */
static size_t serve_frames(struct ddpi_conn *conn, const uint8_t *bytes, size_t len)
{
    size_t used = 0, announced = 0;
    conn->in_need = 0;
    if (conn->dialect == NULL && !choose_dialect(conn, bytes[0]))
        return len;
    struct ddp_error err;
    while (used < len && ddpi_conn_serving(conn) && !conn->overflow) {
        if (ddpi_conn_queued(conn) > conn->env->limits.output_soft)
            conn->env->settle(conn->env->owner);
        if (conn->paused || conn->held || !ddpi_conn_serving(conn))
            break;
        if (used >= announced)
            announced = used + look_ahead(conn, bytes + used, len - used);
        struct ddpi_step step;
        size_t before = ddpi_buf_len(&conn->out);
        ddp_status status =
            conn->dialect->next(&conn->session, bytes + used, len - used, &conn->out, &step, &err);
        ddpi_conn_put_free(conn, before);
        if (step.kind == DDPI_STEP_CLOSE) {
            ddpi_conn_dismiss(conn, status, err.msg);
            return len;
        }
        if (step.kind == DDPI_STEP_DENIED) {
            ddpi_conn_deny(conn, err.msg);
            return len;
        }
        conn->in_need = step.need;
        if (step.kind == DDPI_STEP_MORE)
            break;
        take_step(conn, &step);
        used += step.used;
        if ((conn->client.nworks > 0 || conn->must_wait) && ddpi_conn_serving(conn))
            hold_input(conn);
        if (conn->refused) {
            ddpi_conn_dismiss(conn, DDP_E_CLOSED,
                              conn->refusal != NULL ? conn->refusal : "no memory");
            return len;
        }
    }
    return used;
}

static bool has_read(const struct ddpi_conn *conn)
{
    return conn->turn == conn->env->shared->turn;
}

static void end_overloaded(struct ddpi_conn *conn)
{
    conn->overloaded = true;
    ddpi_conn_dismiss(conn, DDP_E_LIMIT,
                      "the incomplete requests of all connections have reached --max-input-total");
}

/* Room for the rest of the current frame, but for no more than the peer has sent so far: an
 * announced length is not allocated. A second read in the same turn of the loop gets no room, which
 * makes libuv stop, so that a peer that sends continually gets one share of each turn. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct ddpi_conn *conn = handle->data;
    size_t have = ddpi_buf_len(&conn->in);
    if (has_read(conn)) {
        *ret = uv_buf_init(NULL, 0);
        return;
    }
    if (have == 0 || conn->tls != NULL) {
        *ret = uv_buf_init(conn->env->scratch, (unsigned)conn->env->scratch_size);
        return;
    }
    size_t rest = conn->in_need > have ? conn->in_need - have : READ_AHEAD;
    size_t room = have < READ_AHEAD ? READ_AHEAD - have : have;
    room = room < rest ? room : rest;
    room = room < READ_MAX ? room : READ_MAX;
    char *base = (char *)ddpi_buf_reserve(&conn->in, room);
    *ret = uv_buf_init(base, base != NULL ? (unsigned)room : 0);
    if (!ddpi_conn_update_budgets(conn)) {
        end_overloaded(conn);
        *ret = uv_buf_init(conn->env->scratch, (unsigned)conn->env->scratch_size);
    }
}

/* Serve the frames in `in`. */
static bool serve_buffered(struct ddpi_conn *conn)
{
    size_t len = ddpi_buf_len(&conn->in);
    size_t used = len > 0 ? serve_frames(conn, ddpi_buf_head(&conn->in), len) : 0;
    if (ddpi_conn_serving(conn))
        ddpi_buf_consume(&conn->in, used);
    return used > 0;
}

/* ---- TLS ---- */

static bool find_tls_key(void *ctx, const uint8_t *name, size_t len,
                         uint8_t ret_secret[DDPI_TLS_KEY_SIZE])
{
    const struct ddpi_conn *conn = ctx;
    return ddpi_tls_key_find(conn->env->gate.token, conn->env->incarnation, name, len, ret_secret);
}

static bool begins_tls(const struct ddpi_conn *conn, const uint8_t *bytes)
{
    const uint8_t *first = ddpi_buf_len(&conn->in) > 0 ? ddpi_buf_head(&conn->in) : bytes;
    return conn->dialect == NULL && *first == DDPI_TLS_FIRST_BYTE;
}

static void refuse_tls(struct ddpi_conn *conn)
{
    (void)ddpi_buf_append(&conn->out, ddpi_tls_refusal, sizeof ddpi_tls_refusal);
    ddpi_conn_put_free(conn, 0);
    ddpi_conn_dismiss(conn, DDP_E_PROTOCOL,
                      "it speaks TLS, and this server was started without --tls");
}

/* Pass ciphertext to TLS. */
static void take_tls(struct ddpi_conn *conn, const uint8_t *bytes, size_t len)
{
    struct ddp_error err;
    ddp_status status = ddpi_tls_take(conn->tls, bytes, len, &conn->in, &conn->sealed, &err);
    if (ddpi_buf_len(&conn->sealed) > 0)
        conn->env->dirty(conn->env->owner, conn);
    if (ddpi_tls_is_open(conn->tls))
        conn->session.needs_tls = false;
    if (status == DDP_E_DENIED)
        ddpi_conn_deny(conn, err.msg);
    else if (status != DDP_OK)
        ddpi_conn_dismiss(conn, status, err.msg);
}

/* `in` begins with a record; the first one must be the greeting. */
static void begin_tls(struct ddpi_conn *conn)
{
    struct ddp_error err;
    struct ddpi_buf first = conn->in;
    const uint8_t *header = ddpi_buf_head(&first);
    size_t have = ddpi_buf_len(&first), need = DDPI_TLS_HEADER_SIZE;
    if (have >= need)
        need += (size_t)header[DDPI_TLS_HEADER_SIZE - 2] << 8 | header[DDPI_TLS_HEADER_SIZE - 1];
    conn->in_need = need;
    if (need > DDPI_TLS_HANDSHAKE_MAX) {
        ddpi_conn_dismiss(conn, DDP_E_PROTOCOL, "its first TLS record is too long");
        return;
    }
    if (have < need)
        return;
    ddp_status status = ddpi_tls_accept(conn->env->tls, find_tls_key, conn, &conn->tls, &err);
    if (status != DDP_OK) {
        ddpi_conn_end(conn, err.msg);
        return;
    }
    ddpi_buf_init(&conn->in, first.limit);
    take_tls(conn, header, have);
    ddpi_buf_finish(&first);
}

static bool serve_tls(struct ddpi_conn *conn)
{
    if (conn->env->tls == NULL)
        refuse_tls(conn);
    else
        begin_tls(conn);
    return conn->tls != NULL && ddpi_conn_serving(conn) && serve_buffered(conn);
}

/* ---- reading ---- */

static void keep_rest(struct ddpi_conn *conn, const uint8_t *bytes, size_t len)
{
    if (ddpi_conn_serving(conn) && !ddpi_buf_append(&conn->in, bytes, len))
        ddpi_conn_end(conn, "no memory for its request");
}

static bool serve_bytes(struct ddpi_conn *conn, const uv_buf_t *buf, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)buf->base;
    bool in_scratch = buf->base == conn->env->scratch;
    if (conn->tls != NULL) {
        take_tls(conn, bytes, len);
        return ddpi_conn_serving(conn) && serve_buffered(conn);
    }
    bool tls = begins_tls(conn, bytes);
    if (in_scratch && !tls) {
        size_t used = serve_frames(conn, bytes, len);
        keep_rest(conn, bytes + used, len - used);
        return used > 0;
    }
    if (in_scratch)
        keep_rest(conn, bytes, len);
    else
        ddpi_buf_added(&conn->in, len);
    if (!ddpi_conn_serving(conn))
        return false;
    return tls ? serve_tls(conn) : serve_buffered(conn);
}

static bool serve_input(struct ddpi_conn *conn, const uv_buf_t *buf, size_t len)
{
    conn->turn = conn->env->shared->turn;
    bool progress = serve_bytes(conn, buf, len);
    ddpi_conn_trim(&conn->in);
    if (!ddpi_conn_update_budgets(conn))
        end_overloaded(conn);
    return progress;
}

/* libuv also reports an end of file if a reset came after data, since it then does not read
 * further. */
static bool ended_in_order(const struct ddpi_conn *conn)
{
    char byte;
    uv_os_fd_t fd;
    return conn->tls == NULL && uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0 &&
           recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct ddpi_conn *conn = stream->data;
    bool had_its_share = nread == UV_ENOBUFS && has_read(conn);
    if (nread == 0 || had_its_share)
        return;
    conn->peer_ended = nread == UV_EOF && ended_in_order(conn);
    if (nread == UV_EOF && ddpi_conn_queued(conn) > 0) {
        conn->peer_sent_all = true; /* it may still read the replies */
        ddpi_conn_log_end(conn, "the peer closed it");
        ddpi_conn_linger(conn);
    } else if (nread < 0) {
        ddpi_conn_end(conn, nread == UV_EOF ? "the peer closed it" : uv_strerror((int)nread));
    } else {
        bool progress = serve_input(conn, buf, (size_t)nread);
        if (ddpi_conn_serving(conn))
            ddpi_conn_update_deadline(conn, progress);
    }
}

int ddpi_conn_start_reading(struct ddpi_conn *conn)
{
    return uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

void ddpi_conn_release(struct ddpi_conn *conn)
{
    conn->held = false;
    if (!conn->paused && ddpi_conn_serving(conn))
        ddpi_conn_resume(conn);
}

void ddpi_conn_resume(struct ddpi_conn *conn)
{
    conn->paused = false;
    if (conn->held)
        return;
    ddpi_conn_update_deadline(conn, false); /* a pause that follows at once has its own deadline */
    (void)serve_buffered(conn);
    ddpi_conn_trim(&conn->in);
    (void)ddpi_conn_update_budgets(conn);
    if (ddpi_conn_serving(conn)) {
        ddpi_conn_update_deadline(conn, true);
        int uv_err = conn->paused || conn->held ? 0 : ddpi_conn_start_reading(conn);
        if (uv_err != 0)
            ddpi_conn_end(conn, uv_strerror(uv_err));
    }
}
