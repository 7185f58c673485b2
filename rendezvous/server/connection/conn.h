/*
 * conn.h - one connection of the server: its dialect, its states and its deadlines. The bytes are
 * those of a stream (stream.h); here they become requests to the owner, and replies become bytes.
 *
 *   GREETING --handshake, admitted--> OPEN --farewell queued--> LINGERING --sent, or 1 s--> CLOSING
 *       |                              |                           ^                           ^
 *       +--bad greeting, 5 s-----------(---------------------------+                           |
 *       +--wrong proof--> DENYING <----+ bad seal                  |                           |
 *       |                    +--50 to 150 ms: farewell-------------+                           |
 *       +------------------------------+--the peer closed, hard output limit-------------------+
 *
 *   GREETING   until the dialect's handshake is complete; at most handshake_ms
 *   OPEN       requests are served
 *   DENYING    the peer has failed to authenticate, and is told so after a random delay that does
 *              not reveal what was wrong; nothing is read
 *   LINGERING  the last replies and the reason for closing are sent; input is dropped until the
 *              peer closes too, as to close with unread input would discard what was sent; at most
 *              linger_ms
 *   CLOSING    the handles are being closed; then the hook `closed`
 */
#ifndef DDPI_CONN_H
#define DDPI_CONN_H

#include "address.h"
#include "dialect.h"
#include "log.h"
#include "sm.h"
#include "stream.h"

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

/* Whose fault the end of a connection is. */
enum ddpi_conn_fault {
    DDPI_FAULT_NONE,
    DDPI_FAULT_RULE,     /* the peer broke a rule, ... */
    DDPI_FAULT_DENIED,   /* ... failed to authenticate or is not allowed, ... */
    DDPI_FAULT_OVERLOAD, /* ... or the buffers of all connections reached a limit */
};

/* Why no input is read or served. */
enum ddpi_conn_stop {
    DDPI_STOPPED_BY_OUTPUT = 1, /* until output has been sent */
    DDPI_STOPPED_BY_OWNER = 2,  /* until ddpi_conn_release() */
};

/* What the connections of a server share; constant while there are any. */
struct ddpi_conn_env {
    struct ddpi_stream_shared *shared;
    struct ddpi_conn_limits limits;
    struct ddpi_kv_limits kv_limits;
    struct ddpi_gate gate;
    uint64_t incarnation; /* of the store, by which clients recognize it */
    const struct ddpi_log *log;
    void *owner;
    /* The handshake is complete except for the server's last message, which is @err if this does
     * not return DDP_OK. */
    ddp_status (*admit)(void *owner, struct ddpi_conn *conn, struct ddp_error *err);
    /* A hint: the next requests name these keys, at most DDPI_KV_AHEAD, so the processor may fetch
     * their memory now. */
    void (*ahead)(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys, size_t count);
    /* A request has arrived; answer it with ddpi_conn_reply(), now or later. False: the input after
     * it waits for ddpi_conn_release(), so that requests are served in order and no client has two
     * requests put off. */
    bool (*request)(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request);
    /* Flush the connection at the end of this turn of the loop. */
    void (*dirty)(void *owner, struct ddpi_conn *conn);
    /* The output of a connection has grown so much that all connections should be flushed now. */
    void (*settle)(void *owner);
    /* The connection is ended because of its peer (`fault`). Returns whether to log that. */
    bool (*fault)(void *owner, const struct ddpi_conn *conn);
    /* It sends no more requests and takes no more replies, whether it was admitted or not. */
    void (*gone)(void *owner, struct ddpi_conn *conn);
    /* Its handles are closed; the hook frees the memory. */
    void (*closed)(void *owner, struct ddpi_conn *conn);
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
    bool vouches;   /* written by the owner: the peer is an agent, so that clients of its address
                     * whose protocol has no proof may come in */
    bool must_wait; /* written by the owner: it is held, as too many changes wait for a commit */

    struct ddpi_sm sm;
    struct ddpi_stream stream;
    const struct ddpi_dialect *dialect; /* NULL until the first byte */
    struct ddpi_dialect_state dialect_state;
    unsigned stopped; /* a set of enum ddpi_conn_stop; 0: it reads */
    /* A reply could not be queued, so the connection has to end. DDP_E_NOMEM: this peer leaves too
     * many of them unread; DDP_E_LIMIT: all peers do; DDP_E_CLOSED: the dialect has no such reply,
     * whose text is `inexpressible`, or NULL when out of memory. */
    ddp_status unanswered;
    char *inexpressible;
    enum ddpi_conn_fault fault;
    unsigned deadline; /* the current one of those in conn.c */
    uv_timer_t timer;
};

/* Input is still parsed, and replies are taken. */
static inline bool ddpi_conn_serving(const struct ddpi_conn *conn)
{
    return conn->sm.state == CONN_GREETING || conn->sm.state == CONN_OPEN;
}

/* Takes over @fd, which is connected to @peer, even on failure. After a failure *@ret is NULL if
 * memory was short; otherwise it must be closed like any other connection. */
ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd,
                            const struct ddpi_conn_peer *peer, struct ddpi_conn **ret,
                            struct ddp_error *err);

/* Queue @reply, and mark the connection as dirty. */
void ddpi_conn_reply(struct ddpi_conn *conn, const struct ddpi_message *reply);

/* What it was held for is over: serve the requests after that. */
void ddpi_conn_release(struct ddpi_conn *conn);

/* Send what is queued and may leave (stream.h says what may). */
void ddpi_conn_flush(struct ddpi_conn *conn);

/* Tell the peer why, and linger so that it can read that. */
void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text);

/* The same without lingering: output that cannot be sent at once is lost. */
void ddpi_conn_close(struct ddpi_conn *conn, ddp_status status, const char *text);

/* The same without telling the peer: queued output is lost too. NULL: without a log line. */
void ddpi_conn_drop(struct ddpi_conn *conn, const char *why);

#endif
