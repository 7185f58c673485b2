/*
 * conn.h - one connection of the server: bytes in, requests out; replies in, bytes out.
 *
 * States (conn_impl.h has the table):
 *   GREETING   until the dialect's handshake is complete; at most handshake_ms
 *   OPEN       requests are served
 *   DENYING    the peer has failed to authenticate, and is told so after a random delay that does
 *              not reveal what was wrong; nothing is read
 *   LINGERING  the last replies and the reason for closing have been sent; input is dropped until
 *              the peer closes too, since closing with unread input would discard what was sent;
 *              at most linger_ms
 *   CLOSING    the handles are being closed; then the hook `closed`
 */
#ifndef DDPI_CONN_H
#define DDPI_CONN_H

#include "address.h"
#include "budget.h"
#include "dialect.h"
#include "log.h"
#include "sm.h"
#include "tls.h"

#include <uv.h>

struct ddpi_conn_limits {
    uint32_t handshake_ms; /* from the connection to a complete handshake */
    uint32_t frame_ms;     /* from the first byte of a frame to its last */
    uint32_t output_ms;    /* how long the output may stay above output_soft */
    uint32_t linger_ms;
    size_t output_soft; /* above it no input is read */
    size_t output_hard; /* above it the connection is closed */
};

/* 5 s, 60 s, 60 s, 1 s; 8 MiB, 32 MiB. */
extern const struct ddpi_conn_limits ddpi_conn_limits_default;

/* State that the connections of a server share. */
struct ddpi_conn_shared {
    uint64_t turn; /* of the loop; each connection reads once in a turn */
    struct ddpi_budget input;
    struct ddpi_budget output;
};

/* What is known of the peer before it sends anything. */
struct ddpi_conn_peer {
    struct ddpi_address address;
    uint16_t port;
    bool loopback;   /* both ends are on loopback */
    bool elsewhere;  /* on another machine */
    bool other_user; /* of this machine: unknown, or without access to the server */
    bool known;      /* `owner` is known */
    uint32_t owner;
    bool must_authenticate;
};

struct ddpi_conn;

/* What the connections of a server share; constant while there are any. */
struct ddpi_conn_env {
    uv_loop_t *loop;
    struct ddpi_conn_limits limits;
    struct ddpi_kv_limits kv_limits;
    struct ddpi_gate gate;
    struct ddpi_conn_shared *shared;
    uint64_t incarnation;              /* of the store, by which clients recognize it */
    const struct ddpi_tls_engine *tls; /* NULL: no TLS */
    const struct ddpi_log *log;
    void *owner;
    /* The handshake is complete except for the server's last message, which is @err if this does
     * not return DDP_OK. */
    ddp_status (*admit)(void *owner, struct ddpi_conn *conn, struct ddp_error *err);
    /* The next requests name these keys, at most DDPI_KV_AHEAD. */
    void (*ahead)(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys, size_t count);
    /* The connection is ended because of its peer (at_fault). Returns whether to log that. */
    bool (*fault)(void *owner, const struct ddpi_conn *conn);
    /* A request has arrived; answer it with ddpi_conn_reply(), now or later. */
    void (*request)(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request);
    /* Flush the connection at the end of this turn of the loop. */
    void (*dirty)(void *owner, struct ddpi_conn *conn);
    /* Reading stops until ddpi_conn_release(): the core has put off a request of this client, or
     * too many changes wait for a commit. */
    void (*held)(void *owner, struct ddpi_conn *conn);
    /* The output of a connection has grown so much that all connections should be flushed now. */
    void (*settle)(void *owner);
    /* It sends no more requests and takes no more replies, whether it was admitted or not. */
    void (*gone)(void *owner, struct ddpi_conn *conn);
    /* Its handles are closed; the hook frees the memory. */
    void (*closed)(void *owner, struct ddpi_conn *conn);
    char *scratch; /* connections without a partial frame read into this */
    size_t scratch_size;
};

struct ddpi_conn {
    const struct ddpi_conn_env *env;
    char job[DDPI_JOB_MAX + 1]; /* of the port that it came in on; "": any */
    struct ddpi_list of_server;
    struct ddpi_list of_half_open; /* in the owner's list until it is admitted */
    struct ddpi_list of_dirty;     /* in a list of the owner while it has something to flush */
    struct ddpi_list of_held;      /* ... while it is held */
    struct ddpi_kv_client client;
    struct ddpi_conn_peer peer;
    bool vouches; /* written by the owner: the peer is an agent that vouches */

    struct ddpi_sm sm;
    const struct ddpi_dialect *dialect; /* NULL until the first byte */
    struct ddpi_session session;
    struct ddpi_tls *tls;   /* NULL: plain text */
    struct ddpi_buf in;     /* begins with a frame that is incomplete, or not served yet */
    size_t in_need;         /* the size of that frame, as far as known */
    struct ddpi_buf out;    /* not passed to libuv yet; ... */
    size_t ready;           /* ... so many bytes may leave, ... */
    size_t covered;         /* ... and so many may after the owner's commit that is under way */
    struct ddpi_buf sealed; /* with TLS: the same, encrypted */
    struct ddpi_buf flight; /* being written by libuv */
    size_t in_held;         /* the memory of `in`, as last reported to the budget */
    size_t out_held;
    uint64_t turn;      /* of the last read */
    bool paused;        /* does not read until output has been sent */
    bool held;          /* does not read until the owner releases it */
    bool must_wait;     /* written by the owner: hold it, as too many changes wait for a commit */
    bool peer_sent_all; /* the peer has closed its side; it may still read */
    bool peer_ended;    /* the peer closed it in good order (see conn_read.c) */
    bool overflow;      /* a reply did not fit: close it */
    bool refused;       /* the dialect cannot express a reply: close it ... */
    char *refusal;      /* ... for this reason; NULL: out of memory */
    bool shut_down;     /* the write side has been shut down */
    bool at_fault;      /* its peer caused the end: it broke a rule, ... */
    bool denied;        /* ... failed to authenticate or is not allowed, ... */
    bool overloaded;    /* ... or the buffers of all connections reached a limit */
    unsigned deadline;  /* the current one of the deadlines in conn_end.c */
    unsigned handles;   /* not closed yet */

    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
};

/* Takes over @fd, which is connected to @peer, even on failure. After a failure *@ret is NULL if
 * memory was short; otherwise it must be closed like any other connection. */
ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd,
                            const struct ddpi_conn_peer *peer, struct ddpi_conn **ret,
                            struct ddp_error *err);

/* The local address of the connection, as text. */
void ddpi_conn_local_host(const struct ddpi_conn *conn, char *text, size_t size);

/* Queue @reply, and mark the connection as dirty. */
void ddpi_conn_reply(struct ddpi_conn *conn, const struct ddpi_message *reply);

/* What it was held for is over: serve the requests after that. */
void ddpi_conn_release(struct ddpi_conn *conn);

/* Send what is queued and may leave. */
void ddpi_conn_flush(struct ddpi_conn *conn);

/*
 * Which output may leave. Output that depends on the contents of the store waits for the owner's
 * word. A handshake, and the answer to the renewal of a session, may leave at once unless output
 * before them waits.
 */
static inline void ddpi_conn_free_output(struct ddpi_conn *conn)
{
    conn->ready = ddpi_buf_len(&conn->out);
}

/* What is queued now may leave when ddpi_conn_free_covered() is called. */
static inline void ddpi_conn_cover_output(struct ddpi_conn *conn)
{
    conn->covered = ddpi_buf_len(&conn->out);
}

static inline void ddpi_conn_free_covered(struct ddpi_conn *conn)
{
    conn->ready = conn->covered > conn->ready ? conn->covered : conn->ready;
    conn->covered = 0;
}

static inline bool ddpi_conn_withholds(const struct ddpi_conn *conn)
{
    return ddpi_buf_len(&conn->out) > conn->ready;
}

/* Bytes of output that have not left. */
static inline size_t ddpi_conn_queued(const struct ddpi_conn *conn)
{
    return ddpi_buf_len(&conn->out) + ddpi_buf_len(&conn->sealed) +
           uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
}

/* Tell the peer why, and linger so that it can read that. */
void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text);

/* The same without lingering: output that cannot be sent at once is lost. */
void ddpi_conn_close(struct ddpi_conn *conn, ddp_status status, const char *text);

/* The same without telling the peer: queued output is lost too. */
void ddpi_conn_drop(struct ddpi_conn *conn, const char *why);

#endif
