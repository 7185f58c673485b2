/*
 * stream.h - the bytes of one connection of the server: its socket, TLS, the buffers of input and
 * output, and what these count against the budgets of all connections. It knows no protocol and no
 * deadline.
 *
 * Input: whole frames are served where the bytes arrived, in the memory that all streams share;
 * only what the owner leaves of them is kept. A stream reads once in a turn of the loop, so that no
 * peer can keep others from being served, and never allocates what a peer has only announced.
 *
 * Output: the owner appends to `out`. Output that depends on the contents of the store is withheld
 * until the commit of its turn: ddpi_stream_free_*() say what may leave, and ddpi_stream_flush()
 * sends that.
 *
 * A peer whose first bytes are a TLS record speaks TLS, and its protocol inside. Until the first
 * record is complete its bytes are kept like a partial frame: an unauthenticated peer costs no more
 * than that. After that, ciphertext is read into the shared memory and decrypted at once into `in`.
 */
#ifndef DDPI_STREAM_H
#define DDPI_STREAM_H

#include "budget.h"
#include "buf.h"
#include "message.h"
#include "tls.h"

#include <uv.h>

/* Bounds how much work one connection can cause in one turn by what it sends. */
enum { DDPI_STREAM_SCRATCH = 4 * 1024 };

/* What the streams of a server share. */
struct ddpi_stream_shared {
    uv_loop_t *loop;
    uint64_t turn; /* of the loop; advanced by the owner */
    struct ddpi_budget input;
    struct ddpi_budget output;
    struct ddpi_tls_engine *tls; /* NULL: no TLS */
    char scratch[DDPI_STREAM_SCRATCH];
};

struct ddpi_stream;

/* What the owner hears; it may close the stream in each of them. */
struct ddpi_stream_hooks {
    ddpi_tls_find *find_key; /* its context is the stream */
    /* There is more of ddpi_stream_input(), or TLS has something to send. */
    void (*input)(struct ddpi_stream *stream);
    /* Output that could not be sent at once has left. */
    void (*written)(struct ddpi_stream *stream);
    /* The peer sends nothing more; after ddpi_stream_shut_down(): nor do we. */
    void (*ended)(struct ddpi_stream *stream);
    /* The peer has broken a rule, and can still be told so. DDP_E_DENIED: it has not proven its
     * key, or a record was changed on the way. DDP_E_LIMIT: the input of all connections has
     * reached its budget. */
    void (*refused)(struct ddpi_stream *stream, ddp_status status, const char *why);
    /* Nothing can be sent either. */
    void (*lost)(struct ddpi_stream *stream, const char *why);
    /* ddpi_stream_close() is complete. */
    void (*closed)(struct ddpi_stream *stream);
};

struct ddpi_stream {
    struct ddpi_stream_shared *shared;
    const struct ddpi_stream_hooks *hooks;
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool shut_down; /* no output follows */

    enum { DDPI_WIRE_UNKNOWN, DDPI_WIRE_PLAIN, DDPI_WIRE_TLS } wire; /* by the first byte */
    struct ddpi_tls *tls; /* NULL until the peer's first record of TLS is complete */

    enum { DDPI_STREAM_STOPPED, DDPI_STREAM_READS, DDPI_STREAM_DISCARDS } reading;
    /* An end of file means that no process holds the peer's end any more, since a client that gives
     * up a connection and lives on resets it. A reset means less: the peer's kernel also sends one
     * when a process dies with unread input. With TLS an end of file counts as a loss, since
     * anyone could forge it. */
    enum { DDPI_PEER_SENDS, DDPI_PEER_ENDED, DDPI_PEER_LOST } peer;
    uint64_t turn;           /* of the last read */
    struct ddpi_bytes fresh; /* input in the scratch memory, until the hook has returned */
    struct ddpi_buf in;      /* begins with a frame that is incomplete, or not served yet */
    size_t need;             /* the size of that frame, as far as known */
    size_t in_held;          /* the memory of `in`, as last reported to the budget */

    struct ddpi_buf out;    /* not passed to libuv yet; ... */
    size_t ready;           /* ... so many bytes may leave, ... */
    size_t covered;         /* ... and so many may after the commit that is under way */
    struct ddpi_buf sealed; /* with TLS: the same, encrypted */
    struct ddpi_buf flight; /* being written by libuv */
    size_t out_held;
};

/* Take over @fd, and read. Returns a libuv error; the stream must be closed in any case. Nothing
 * fits into `out` before ddpi_stream_limit_output(). */
int ddpi_stream_open(struct ddpi_stream *stream, struct ddpi_stream_shared *shared,
                     const struct ddpi_stream_hooks *hooks, int fd);
void ddpi_stream_close(struct ddpi_stream *stream);

/* The local address, as text. */
void ddpi_stream_local_host(const struct ddpi_stream *stream, char *text, size_t size);

/* ---- input ---- */

/* Read on. Returns a libuv error. */
int ddpi_stream_read(struct ddpi_stream *stream);
void ddpi_stream_stop(struct ddpi_stream *stream);
/* Drop the input, and read no more. */
void ddpi_stream_drop_input(struct ddpi_stream *stream);
/* Drop the input, and what follows. Returns a libuv error. */
int ddpi_stream_discard(struct ddpi_stream *stream);

/* What has arrived and is not consumed yet. */
static inline struct ddpi_bytes ddpi_stream_input(const struct ddpi_stream *stream)
{
    return stream->fresh.len > 0
               ? stream->fresh
               : ddpi_bytes_of(ddpi_buf_head(&stream->in), ddpi_buf_len(&stream->in));
}

/* The first @used bytes have been served. The rest begins with a frame of @need bytes, as far as
 * that is known; 0: not known. */
void ddpi_stream_consume(struct ddpi_stream *stream, size_t used, size_t need);

/* ---- output ---- */

/* Limit `out` to @most bytes that have not left, and to what the budget of all connections has for
 * this one. Returns whether the budget allows less than @most. */
bool ddpi_stream_limit_output(struct ddpi_stream *stream, size_t most);

/* `out` may have grown from @before bytes. @free: what was appended does not depend on the contents
 * of the store, so it may leave unless output before it waits. */
void ddpi_stream_appended(struct ddpi_stream *stream, size_t before, bool free);

/* All that is queued may leave. */
static inline void ddpi_stream_free_all(struct ddpi_stream *stream)
{
    stream->ready = ddpi_buf_len(&stream->out);
}

/* What is queued now may leave when ddpi_stream_free_covered() is called. */
static inline void ddpi_stream_cover(struct ddpi_stream *stream)
{
    stream->covered = ddpi_buf_len(&stream->out);
}

static inline void ddpi_stream_free_covered(struct ddpi_stream *stream)
{
    stream->ready = stream->covered > stream->ready ? stream->covered : stream->ready;
    stream->covered = 0;
}

static inline bool ddpi_stream_withholds(const struct ddpi_stream *stream)
{
    return ddpi_buf_len(&stream->out) > stream->ready;
}

/* Bytes of output that libuv does not have yet. */
static inline size_t ddpi_stream_unsent(const struct ddpi_stream *stream)
{
    return ddpi_buf_len(&stream->out) + ddpi_buf_len(&stream->sealed);
}

/* Bytes of output that have not left. */
static inline size_t ddpi_stream_queued(const struct ddpi_stream *stream)
{
    return ddpi_stream_unsent(stream) +
           uv_stream_get_write_queue_size((const uv_stream_t *)&stream->tcp);
}

/* Send what may leave, unless output is on its way, which the hook `written` follows. While
 * reading is stopped that hook follows all output. Returns a libuv error. */
int ddpi_stream_flush(struct ddpi_stream *stream);

/* Once libuv has all output, tell the peer that no more follows. Returns a libuv error. */
int ddpi_stream_shut_down(struct ddpi_stream *stream);

#endif
