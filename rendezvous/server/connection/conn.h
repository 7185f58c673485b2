/*
 * conn.h - one connection of the server: bytes in, requests out; replies in, bytes out.
 *
 * States (conn.c has the table):
 *   GREETING   until the dialect's handshake is complete; at most handshake_ms
 *   OPEN       requests are served
 *   DENYING    the peer could not prove who he is, and is told so after a random while that says
 *              nothing of how far he came; nothing is read
 *   LINGERING  the last replies, and the reason for closing, have been sent; input is dropped until
 *              the peer closes too, since closing with unread input would destroy what was sent; at
 *              most linger_ms
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

/* What changes while there are connections. */
struct ddpi_conn_shared {
    uint64_t turn; /* of the loop: each is read from once */
    struct ddpi_budget input;
    struct ddpi_budget output;
};

/* Who is at the other end, as far as that is known without a word of his. */
struct ddpi_visitor {
    struct ddpi_address address;
    uint16_t port;
    bool loopback;  /* both ends are */
    bool elsewhere; /* he comes from another machine */
    bool stranger; /* another user of this machine, whom it is not open to, or nobody knows whose */
    bool known;    /* a stranger: his number is */
    uint32_t owner;
    bool must_prove;
};

struct ddpi_conn;

/* What the connections of one server share; unchanged while there are any. */
struct ddpi_conn_env {
    uv_loop_t *loop;
    struct ddpi_conn_limits limits;
    struct ddpi_kv_limits kv_limits;
    struct ddpi_gate gate;
    struct ddpi_conn_shared *shared;
    uint64_t incarnation;              /* of the store, by which clients know it again */
    const struct ddpi_tls_engine *tls; /* NULL: nobody speaks TLS here */
    const struct ddpi_log *log;
    void *owner;
    /* Its handshake is complete but for the last word, which is the reason in @err if this does not
     * return DDP_OK. */
    ddp_status (*admit)(void *owner, struct ddpi_conn *conn, struct ddp_error *err);
    /* Requests that name these keys come next, at most DDPI_KV_AHEAD. */
    void (*ahead)(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys, size_t count);
    /* It is ended for what its peer did, or is: at_fault is set. Whether the log may say so. */
    bool (*fault)(void *owner, const struct ddpi_conn *conn);
    /* A request has come; it is answered through ddpi_conn_reply(), now or later. */
    void (*request)(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request);
    /* There is output to be flushed, or the connection is to be ended, at the end of this turn of
     * the loop. */
    void (*dirty)(void *owner, struct ddpi_conn *conn);
    /* It is held until ddpi_conn_release(): its client's request stands in line. */
    void (*held)(void *owner, struct ddpi_conn *conn);
    /* The output of one connection has grown so much that all is to be flushed now. */
    void (*settle)(void *owner);
    /* It asks no more and wants no replies, whether it was admitted or not. */
    void (*gone)(void *owner, struct ddpi_conn *conn);
    /* Its handles are closed; the memory is the hook's to free. */
    void (*closed)(void *owner, struct ddpi_conn *conn);
    char *scratch; /* every read of a connection without a half frame goes here */
    size_t scratch_size;
};

struct ddpi_conn {
    const struct ddpi_conn_env *env;
    char job[DDPI_JOB_MAX + 1]; /* of the port it came in by; "": any */
    struct ddpi_list of_server;
    struct ddpi_list of_half_open; /* in the owner's list until its peer has been admitted */
    struct ddpi_list of_dirty;     /* in the owner's list while it has something to flush */
    struct ddpi_list of_held;      /* ... while it is held */
    struct ddpi_kv_client client;
    struct ddpi_visitor visitor;
    bool vouches; /* the owner's: the peer counts in its admission */

    struct ddpi_sm sm;
    const struct ddpi_dialect *dialect; /* NULL until the first byte */
    struct ddpi_session session;
    struct ddpi_tls *tls;   /* NULL: all goes as it is */
    struct ddpi_buf in;     /* begins with a frame that is not whole, or not served yet */
    size_t in_need;         /* what that frame wants in all */
    struct ddpi_buf out;    /* not handed to libuv yet */
    struct ddpi_buf sealed; /* of TLS: the same, as it will leave */
    struct ddpi_buf flight; /* being written by libuv */
    size_t in_held;         /* what these take, as it was last told to the budgets */
    size_t out_held;
    uint64_t turn;     /* of the last read */
    bool paused;       /* reads nothing until output has left */
    bool held;         /* ... nor until the core has done what was asked last */
    bool peer_done;    /* the peer has sent all it had to; it may still read */
    bool peer_ended;   /* it was the peer who ended it, and in good order (see conn_read.c) */
    bool overflow;     /* a reply did not fit: to be closed */
    bool refused;      /* a reply has no words in the dialect: to be closed ... */
    char *refusal;     /* ... for this reason; NULL when there was no memory for it */
    bool hung_up;      /* the peer has been told that nothing more comes */
    bool at_fault;     /* it is ended for a rule that its peer broke */
    bool denied;       /* ... for who its peer is, or could not prove to be */
    bool overloaded;   /* ... for what all connections take together */
    unsigned deadline; /* which of the deadlines in conn.c runs */
    unsigned handles;  /* not closed yet */

    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
};

/* Takes over @fd, which is connected to @visitor, also when it fails. *@ret is then NULL when there
 * was no memory for it; else it is there, and must be closed as any other. */
ddp_status ddpi_conn_create(const struct ddpi_conn_env *env, int fd,
                            const struct ddpi_visitor *visitor, struct ddpi_conn **ret,
                            struct ddp_error *err);

/* The address at which the peer has reached this machine, as text. */
void ddpi_conn_local_host(const struct ddpi_conn *conn, char *text, size_t size);

/* Queue @reply, and the connection as dirty. */
void ddpi_conn_reply(struct ddpi_conn *conn, const struct ddpi_message *reply);

/* Its client's request has been answered: serve what follows. */
void ddpi_conn_release(struct ddpi_conn *conn);

/* Send what is queued. */
void ddpi_conn_flush(struct ddpi_conn *conn);

/* Bytes of output that have not left. */
static inline size_t ddpi_conn_queued(const struct ddpi_conn *conn)
{
    return ddpi_buf_len(&conn->out) + ddpi_buf_len(&conn->sealed) +
           uv_stream_get_write_queue_size((const uv_stream_t *)&conn->tcp);
}

/* Tell the peer why and linger until it has had time to read that. */
void ddpi_conn_dismiss(struct ddpi_conn *conn, ddp_status status, const char *text);

/* The same without lingering: what cannot be sent at once is lost. */
void ddpi_conn_close(struct ddpi_conn *conn, ddp_status status, const char *text);

/* The same without a word: what is queued is lost, too. */
void ddpi_conn_drop(struct ddpi_conn *conn, const char *why);

#endif
