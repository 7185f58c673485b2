/*
 * conn_output.c - the output of a connection: replies gathered, withheld until they may leave,
 * sealed where TLS is spoken, written, and the pause in reading while a peer leaves too much
 * unread.
 */
#include "conn_impl.h"
#include "mem.h"

/* ---- what may leave ---- */

void ddpi_conn_put_free(struct ddpi_conn *conn, size_t before)
{
    if (conn->ready == before)
        ddpi_conn_free_output(conn);
}

/* The first @len bytes of the output have gone on. */
static void output_gone(struct ddpi_conn *conn, size_t len)
{
    conn->ready -= len;
    conn->covered -= conn->covered < len ? conn->covered : len;
}

void ddpi_conn_drop_output(struct ddpi_conn *conn)
{
    ddpi_buf_consume(&conn->out, ddpi_buf_len(&conn->out));
    conn->ready = conn->covered = 0;
}

/* A session that is renewed is known to have existed, and its renewal changes nothing that is kept,
 * so the answer does not wait for a commit: agents would lose their sessions to a slow one. */
static bool is_renewal(const struct ddpi_message *reply)
{
    return reply->status == DDP_OK &&
           (reply->op == DDPI_OP_SESSION_KEEP || reply->op == DDPI_OP_SESSION_HOLD);
}

/* ---- writing ---- */

static void on_output_written(uv_write_t *write, int uv_err)
{
    struct ddpi_conn *conn = write->data;
    ddpi_buf_consume(&conn->flight, ddpi_buf_len(&conn->flight));
    ddpi_conn_trim(&conn->flight);
    (void)ddpi_conn_update_budgets(conn);
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

/* Move the first @count bytes of @rest to `flight`, which is empty. */
static bool begin_flight(struct ddpi_conn *conn, struct ddpi_buf *rest, size_t count)
{
    if (count < ddpi_buf_len(rest)) {
        bool copied = ddpi_buf_append(&conn->flight, ddpi_buf_head(rest), count);
        ddpi_buf_consume(rest, copied ? count : 0);
        return copied;
    }
    struct ddpi_buf emptied = conn->flight;
    conn->flight = *rest;
    *rest = emptied;
    return true;
}

static int write_rest(struct ddpi_conn *conn, struct ddpi_buf *rest, size_t count)
{
    if (!begin_flight(conn, rest, count))
        return UV_ENOMEM;
    if (rest == &conn->out)
        output_gone(conn, count);
    size_t len = ddpi_buf_len(&conn->flight);
    uv_buf_t bytes = {.base = (char *)conn->flight.data + conn->flight.head, .len = len};
    conn->write.data = conn;
    return uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &bytes, 1, on_output_written);
}

/* Only while a write is in progress, whose completion resumes reading, or output is withheld, which
 * is written later. */
static void pause_reading(struct ddpi_conn *conn)
{
    conn->paused = true;
    uv_read_stop((uv_stream_t *)&conn->tcp);
    ddpi_conn_update_deadline(conn, false);
}

/* The buffer to send next. With TLS, only as much is encrypted at once as can probably be sent.
 * After the peer has closed TLS, output is dropped. */
static int next_output(struct ddpi_conn *conn, struct ddpi_buf **ret)
{
    *ret = conn->tls != NULL ? &conn->sealed : &conn->out;
    if (conn->tls == NULL || ddpi_buf_len(&conn->sealed) > 0 || conn->ready == 0)
        return 0;
    struct ddp_error err;
    size_t before = ddpi_buf_len(&conn->out);
    size_t most = conn->ready < DDPI_CONN_SEAL_MAX ? conn->ready : DDPI_CONN_SEAL_MAX;
    conn->sealed.limit = 2 * DDPI_CONN_SEAL_MAX; /* this output has passed the limits already */
    ddp_status status = ddpi_tls_put(conn->tls, &conn->out, most, &conn->sealed, &err);
    output_gone(conn, before - ddpi_buf_len(&conn->out));
    if (status == DDP_E_CLOSED)
        ddpi_conn_drop_output(conn);
    return status == DDP_E_NOMEM ? UV_ENOMEM : 0;
}

/* How many bytes of @next may be sent. */
static size_t sendable(const struct ddpi_conn *conn, const struct ddpi_buf *next)
{
    return next == &conn->out ? conn->ready : ddpi_buf_len(next);
}

/* Write the queued output, unless a write is in progress; its completion continues. A pause ends
 * with such a completion, so during a pause uv_write() is used even if everything could be sent at
 * once. */
static int write_queue(struct ddpi_conn *conn)
{
    struct ddpi_buf *next;
    int uv_err = 0;
    while (ddpi_buf_len(&conn->flight) == 0 && (uv_err = next_output(conn, &next)) == 0 &&
           sendable(conn, next) > 0) {
        size_t len = sendable(conn, next);
        if (conn->paused)
            return write_rest(conn, next, len);
        uv_buf_t bytes = {.base = (char *)next->data + next->head, .len = len};
        int sent = uv_try_write((uv_stream_t *)&conn->tcp, &bytes, 1);
        if (sent < 0 && sent != UV_EAGAIN)
            return sent;
        size_t gone = sent > 0 ? (size_t)sent : 0;
        ddpi_buf_consume(next, gone);
        if (next == &conn->out)
            output_gone(conn, gone);
        if (gone < len)
            return write_rest(conn, next, len - gone);
    }
    ddpi_conn_trim(&conn->out);
    ddpi_conn_trim(&conn->sealed);
    (void)ddpi_conn_update_budgets(conn);
    return uv_err;
}

static void on_shutdown(uv_shutdown_t *shutdown, int uv_err)
{
    (void)uv_err; /* the peer's end of file or the deadline ends the lingering */
    struct ddpi_conn *conn = shutdown->handle->data;
    if (conn->peer_sent_all)
        ddpi_conn_close_handles(conn);
}

/* All output is with libuv: shut down the write side. */
static void shut_down_output(struct ddpi_conn *conn)
{
    if (conn->shut_down || ddpi_buf_len(&conn->out) + ddpi_buf_len(&conn->sealed) > 0)
        return;
    conn->shut_down = true;
    if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) != 0)
        ddpi_conn_close_handles(conn);
}

void ddpi_conn_flush(struct ddpi_conn *conn)
{
    if (conn->sm.state == CONN_CLOSING || conn->sm.state == CONN_DENYING)
        return;
    if (conn->overflow) {
        conn->at_fault = true;
        ddpi_conn_end(conn, conn->overloaded ? "the unread replies of all connections have reached "
                                               "--max-output-total"
                                             : "too many of its replies are waiting to be read");
        return;
    }
    int uv_err = write_queue(conn);
    if (uv_err != 0)
        ddpi_conn_end(conn, uv_strerror(uv_err));
    else if (conn->sm.state == CONN_LINGERING)
        shut_down_output(conn);
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
    size_t before = ddpi_buf_len(&conn->out);
    conn->out.limit = most > at_libuv ? most - at_libuv : 0;
    ddp_status status = conn->dialect->put_reply(&conn->session, &conn->out, reply);
    if (is_renewal(reply))
        ddpi_conn_put_free(conn, before);
    (void)ddpi_conn_update_budgets(conn);
    conn->overflow = status == DDP_E_NOMEM;
    conn->overloaded = conn->overflow && room < hard;
    conn->refused = status == DDP_E_CLOSED;
    if (conn->refused)
        conn->refusal = ddpi_strndup(reply->text.data, reply->text.len);
    conn->env->dirty(conn->env->owner, conn);
}
