/*
 * stream.c - see stream.h. In the order of the wire: bytes arrive, TLS opens them, the owner serves
 * them, the rest is kept; output is sealed, written and, where the socket is full, left to libuv.
 */
#include "stream.h"
#include "error.h"

#include <unistd.h>

enum {
    INPUT_MAX = 64 * 1024 * 1024, /* a last bound; the owner allows only shorter frames */
    READ_AHEAD = 16 * 1024,
    READ_MAX = 256 * 1024,
    SEAL_MAX = 64 * 1024,  /* the most that is sealed at once */
    KEEP_EMPTY = 4 * 1024, /* the size up to which an empty buffer keeps its memory */
    KEEPALIVE_S = 60,
};

/* Free the memory of an empty buffer that has grown. */
static void trim(struct ddpi_buf *buf)
{
    if (ddpi_buf_len(buf) == 0 && buf->size > KEEP_EMPTY)
        ddpi_buf_finish(buf);
}

/* False: `in` has grown, and the input of all connections exceeds its budget. */
static bool count_input(struct ddpi_stream *stream)
{
    return ddpi_budget_move(&stream->shared->input, &stream->in_held, stream->in.size);
}

/* The limit is checked before output is queued. */
static void count_output(struct ddpi_stream *stream)
{
    (void)ddpi_budget_move(&stream->shared->output, &stream->out_held,
                           stream->out.size + stream->sealed.size + stream->flight.size);
}

/* ---- input ---- */

static bool has_read(const struct ddpi_stream *stream)
{
    return stream->turn == stream->shared->turn;
}

/* Room for the rest of the current frame, but for no more than the peer has sent so far: an
 * announced length is not allocated. A second read in the same turn of the loop gets no room, which
 * makes libuv stop, so that a peer that sends continually gets one share of each turn. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct ddpi_stream *stream = handle->data;
    size_t have = ddpi_buf_len(&stream->in);
    *ret = uv_buf_init(NULL, 0);
    if (stream->reading == DDPI_STREAM_READS && has_read(stream))
        return;
    if (have == 0 || stream->tls != NULL) { /* so, too, what is discarded */
        *ret = uv_buf_init(stream->shared->scratch, sizeof stream->shared->scratch);
        return;
    }
    size_t rest = stream->need > have ? stream->need - have : READ_AHEAD;
    size_t room = have < READ_AHEAD ? READ_AHEAD - have : have;
    room = room < rest ? room : rest;
    room = room < READ_MAX ? room : READ_MAX;
    char *base = (char *)ddpi_buf_reserve(&stream->in, room);
    if (count_input(stream) && base != NULL)
        *ret = uv_buf_init(base, (unsigned)room);
}

/* `in` begins with a record; the first one must be the greeting. */
static ddp_status begin_tls(struct ddpi_stream *stream, struct ddp_error *err)
{
    struct ddpi_buf first = stream->in;
    const uint8_t *header = ddpi_buf_head(&first);
    size_t have = ddpi_buf_len(&first), need = DDPI_TLS_HEADER_SIZE;
    if (stream->shared->tls == NULL) {
        (void)ddpi_buf_append(&stream->out, ddpi_tls_refusal, sizeof ddpi_tls_refusal);
        ddpi_stream_appended(stream, 0, true);
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "it speaks TLS, and this server was started without --tls");
    }
    if (have >= need)
        need += (size_t)header[DDPI_TLS_HEADER_SIZE - 2] << 8 | header[DDPI_TLS_HEADER_SIZE - 1];
    stream->need = need;
    if (need > DDPI_TLS_HANDSHAKE_MAX)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "its first TLS record is too long");
    if (have < need)
        return DDP_OK;
    ddp_status status =
        ddpi_tls_accept(stream->shared->tls, stream->hooks->find_key, stream, &stream->tls, err);
    if (status != DDP_OK)
        return status;
    ddpi_buf_init(&stream->in, first.limit);
    status = ddpi_tls_take(stream->tls, header, have, &stream->in, &stream->sealed, err);
    ddpi_buf_finish(&first);
    return status;
}

/* Make what was read part of ddpi_stream_input(). */
static ddp_status take(struct ddpi_stream *stream, const char *bytes, size_t len,
                       struct ddp_error *err)
{
    if (stream->tls != NULL)
        return ddpi_tls_take(stream->tls, bytes, len, &stream->in, &stream->sealed, err);
    if (stream->wire == DDPI_WIRE_UNKNOWN)
        stream->wire = *bytes == DDPI_TLS_FIRST_BYTE ? DDPI_WIRE_TLS : DDPI_WIRE_PLAIN;
    if (bytes != stream->shared->scratch)
        ddpi_buf_added(&stream->in, len);
    else if (stream->wire == DDPI_WIRE_PLAIN)
        stream->fresh = ddpi_bytes_of(bytes, len);
    else if (!ddpi_buf_append(&stream->in, bytes, len))
        return ddpi_error_set(err, DDP_E_NOMEM, "no memory for its request");
    return stream->wire == DDPI_WIRE_TLS ? begin_tls(stream, err) : DDP_OK;
}

static ddp_status refuse_overload(struct ddp_error *err)
{
    return ddpi_error_set(
        err, DDP_E_LIMIT,
        "the incomplete requests of all connections have reached --max-input-total");
}

/* The owner has served what it could: keep the rest of what is in the scratch memory. */
static ddp_status keep_rest(struct ddpi_stream *stream, struct ddp_error *err)
{
    struct ddpi_bytes rest = stream->fresh;
    stream->fresh.len = 0;
    if (rest.len > 0 && !ddpi_buf_append(&stream->in, rest.data, rest.len))
        return ddpi_error_set(err, DDP_E_NOMEM, "no memory for its request");
    trim(&stream->in);
    return count_input(stream) ? DDP_OK : refuse_overload(err);
}

/* libuv also reports an end of file if a reset came after data, since it then does not read
 * further. */
static bool ended_in_order(const struct ddpi_stream *stream)
{
    char byte;
    uv_os_fd_t fd;
    return stream->tls == NULL && uv_fileno((const uv_handle_t *)&stream->tcp, &fd) == 0 &&
           recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void on_read(uv_stream_t *tcp, ssize_t nread, const uv_buf_t *buf)
{
    struct ddpi_stream *stream = tcp->data;
    struct ddpi_budget *budget = &stream->shared->input;
    struct ddp_error err;
    ddp_status status = DDP_OK;
    if (nread == UV_EOF) {
        stream->peer = ended_in_order(stream) ? DDPI_PEER_ENDED : DDPI_PEER_LOST;
        stream->hooks->ended(stream);
        return;
    }
    if (nread == UV_ENOBUFS && has_read(stream))
        return;
    if (nread < 0 && (nread != UV_ENOBUFS || budget->used <= budget->limit)) {
        stream->hooks->lost(stream, uv_strerror((int)nread));
        return;
    }
    if (nread == 0 || stream->reading == DDPI_STREAM_DISCARDS)
        return;
    stream->turn = stream->shared->turn;
    status = nread < 0 ? refuse_overload(&err) : take(stream, buf->base, (size_t)nread, &err);
    if (status == DDP_OK && (stream->wire == DDPI_WIRE_PLAIN || stream->tls != NULL))
        stream->hooks->input(stream);
    if (status == DDP_OK)
        status = keep_rest(stream, &err);
    if (status == DDP_E_NOMEM)
        stream->hooks->lost(stream, err.msg);
    else if (status != DDP_OK)
        stream->hooks->refused(stream, status, err.msg);
}

int ddpi_stream_read(struct ddpi_stream *stream)
{
    stream->reading = DDPI_STREAM_READS;
    return uv_read_start((uv_stream_t *)&stream->tcp, on_alloc, on_read);
}

void ddpi_stream_stop(struct ddpi_stream *stream)
{
    stream->reading = DDPI_STREAM_STOPPED;
    uv_read_stop((uv_stream_t *)&stream->tcp);
}

void ddpi_stream_consume(struct ddpi_stream *stream, size_t used, size_t need)
{
    stream->need = need;
    if (stream->fresh.len > 0) {
        stream->fresh =
            ddpi_bytes_of((const uint8_t *)stream->fresh.data + used, stream->fresh.len - used);
        return;
    }
    ddpi_buf_consume(&stream->in, used);
    trim(&stream->in);
    if (stream->in.size < stream->in_held)
        (void)count_input(stream);
}

void ddpi_stream_drop_input(struct ddpi_stream *stream)
{
    ddpi_stream_stop(stream);
    stream->fresh.len = 0;
    ddpi_buf_finish(&stream->in);
    (void)count_input(stream);
}

int ddpi_stream_discard(struct ddpi_stream *stream)
{
    ddpi_stream_drop_input(stream);
    if (stream->peer != DDPI_PEER_SENDS)
        return 0;
    stream->reading = DDPI_STREAM_DISCARDS;
    return uv_read_start((uv_stream_t *)&stream->tcp, on_alloc, on_read);
}

/* ---- output ---- */

bool ddpi_stream_limit_output(struct ddpi_stream *stream, size_t most)
{
    size_t room = ddpi_budget_room(&stream->shared->output, stream->out_held);
    size_t allowed = room < most ? room : most;
    size_t at_libuv = uv_stream_get_write_queue_size((const uv_stream_t *)&stream->tcp);
    stream->out.limit = allowed > at_libuv ? allowed - at_libuv : 0;
    return room < most;
}

void ddpi_stream_appended(struct ddpi_stream *stream, size_t before, bool free)
{
    if (free && stream->ready == before)
        stream->ready = ddpi_buf_len(&stream->out);
    count_output(stream);
}

/* The first @len bytes of @from have gone on. */
static void output_gone(struct ddpi_stream *stream, const struct ddpi_buf *from, size_t len)
{
    if (from != &stream->out)
        return;
    stream->ready -= len;
    stream->covered -= stream->covered < len ? stream->covered : len;
}

/* Encrypt as much as can probably be sent at once. After the peer has closed TLS, output is
 * dropped. */
static bool seal(struct ddpi_stream *stream)
{
    struct ddp_error err;
    size_t before = ddpi_buf_len(&stream->out);
    size_t most = stream->ready < SEAL_MAX ? stream->ready : SEAL_MAX;
    ddp_status status = ddpi_tls_put(stream->tls, &stream->out, most, &stream->sealed, &err);
    output_gone(stream, &stream->out, before - ddpi_buf_len(&stream->out));
    if (status == DDP_E_CLOSED) {
        ddpi_buf_finish(&stream->out);
        stream->ready = stream->covered = 0;
    }
    return status != DDP_E_NOMEM;
}

static void on_written(uv_write_t *write, int uv_err)
{
    struct ddpi_stream *stream = write->data;
    ddpi_buf_consume(&stream->flight, ddpi_buf_len(&stream->flight));
    trim(&stream->flight);
    count_output(stream);
    if (uv_is_closing((const uv_handle_t *)&stream->tcp))
        return;
    if (uv_err != 0)
        stream->hooks->lost(stream, uv_strerror(uv_err));
    else
        stream->hooks->written(stream);
}

/* Move the first @len bytes of @from to `flight`, which is empty, and leave them to libuv. */
static int write_rest(struct ddpi_stream *stream, struct ddpi_buf *from, size_t len)
{
    if (len < ddpi_buf_len(from)) {
        stream->flight.limit = len; /* this output has passed the limits already */
        if (!ddpi_buf_append(&stream->flight, ddpi_buf_head(from), len))
            return UV_ENOMEM;
        ddpi_buf_consume(from, len);
    } else {
        struct ddpi_buf emptied = stream->flight;
        emptied.limit = from->limit;
        stream->flight = *from;
        *from = emptied;
    }
    output_gone(stream, from, len);
    uv_buf_t bytes = {.base = (char *)stream->flight.data + stream->flight.head, .len = len};
    return uv_write(&stream->write, (uv_stream_t *)&stream->tcp, &bytes, 1, on_written);
}

int ddpi_stream_flush(struct ddpi_stream *stream)
{
    struct ddpi_buf *from = stream->tls != NULL ? &stream->sealed : &stream->out;
    while (ddpi_buf_len(&stream->flight) == 0) {
        if (stream->tls != NULL && ddpi_buf_len(from) == 0 && stream->ready > 0 && !seal(stream))
            return UV_ENOMEM;
        size_t len = stream->tls != NULL ? ddpi_buf_len(from) : stream->ready;
        if (len == 0)
            break;
        int sent = 0;
        if (stream->reading != DDPI_STREAM_STOPPED) {
            uv_buf_t bytes = {.base = (char *)from->data + from->head, .len = len};
            sent = uv_try_write((uv_stream_t *)&stream->tcp, &bytes, 1);
            if (sent < 0 && sent != UV_EAGAIN)
                return sent;
            sent = sent < 0 ? 0 : sent;
            ddpi_buf_consume(from, (size_t)sent);
            output_gone(stream, from, (size_t)sent);
        }
        if ((size_t)sent < len)
            return write_rest(stream, from, len - (size_t)sent);
    }
    trim(&stream->out);
    trim(&stream->sealed);
    count_output(stream);
    return 0;
}

static void on_shutdown(uv_shutdown_t *shutdown, int uv_err)
{
    (void)uv_err; /* what the peer does next tells whether it has read everything */
    struct ddpi_stream *stream = shutdown->handle->data;
    if (stream->peer != DDPI_PEER_SENDS && !uv_is_closing((const uv_handle_t *)&stream->tcp))
        stream->hooks->ended(stream);
}

int ddpi_stream_shut_down(struct ddpi_stream *stream)
{
    if (stream->shut_down || ddpi_stream_unsent(stream) > 0)
        return 0;
    stream->shut_down = true;
    return uv_shutdown(&stream->shutdown, (uv_stream_t *)&stream->tcp, on_shutdown);
}

/* ---- opening and closing ---- */

int ddpi_stream_open(struct ddpi_stream *stream, struct ddpi_stream_shared *shared,
                     const struct ddpi_stream_hooks *hooks, int fd)
{
    *stream = (struct ddpi_stream){.shared = shared, .hooks = hooks};
    ddpi_buf_init(&stream->in, INPUT_MAX);
    ddpi_buf_init(&stream->sealed, 2 * SEAL_MAX);
    uv_tcp_init(shared->loop, &stream->tcp); /* cannot fail */
    stream->tcp.data = stream->write.data = stream;
    int uv_err = uv_tcp_open(&stream->tcp, fd);
    if (uv_err != 0) {
        close(fd);
        return uv_err;
    }
    uv_tcp_nodelay(&stream->tcp, 1);
    uv_tcp_keepalive(&stream->tcp, 1, KEEPALIVE_S);
    return ddpi_stream_read(stream);
}

static void on_closed(uv_handle_t *handle)
{
    struct ddpi_stream *stream = handle->data;
    ddpi_buf_finish(&stream->in);
    ddpi_buf_finish(&stream->out);
    ddpi_buf_finish(&stream->sealed);
    ddpi_buf_finish(&stream->flight);
    ddpi_tls_destroy(stream->tls);
    (void)count_input(stream);
    count_output(stream);
    stream->hooks->closed(stream);
}

void ddpi_stream_close(struct ddpi_stream *stream)
{
    stream->fresh.len = 0;
    uv_close((uv_handle_t *)&stream->tcp, on_closed);
}

void ddpi_stream_local_host(const struct ddpi_stream *stream, char *text, size_t size)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    int len = sizeof address;
    *text = '\0';
    if (uv_tcp_getsockname(&stream->tcp, (struct sockaddr *)&address, &len) == 0)
        (void)getnameinfo((struct sockaddr *)&address, (socklen_t)len, text, (socklen_t)size, NULL,
                          0, NI_NUMERICHOST);
}
