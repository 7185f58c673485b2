/*
 * dialect.h - what a connection needs to know of a protocol. Each dialect is one codec file and
 * one row in the list of dialect.c; the first byte that a client sends decides which is spoken.
 *
 * A dialect turns bytes into steps and replies into bytes. It does no I/O and keeps no bytes; what
 * it must remember between steps is in struct ddpi_session.
 */
#ifndef DDPI_DIALECT_H
#define DDPI_DIALECT_H

#include "kv.h"
#include "proof.h"

/* What a server asks of those who come; its connections share it. */
struct ddpi_gate {
    const struct ddpi_credential *token; /* NULL: none, so nobody can prove anything */
    bool open_to_loopback; /* this user's processes on this machine need not prove anything, ... */
    bool open_to_users;    /* ... nor those of its other users, who then count as his */
    bool open_to_all;
    bool tcpstore_in_clear; /* where TLS is asked for, TCPStore clients need none */
    void (*random)(void *bytes, size_t len);
};

struct ddpi_session {
    const struct ddpi_kv_limits *limits;
    const struct ddpi_gate *gate;
    uint64_t incarnation; /* of the store */
    unsigned phase;       /* the dialect's own; 0 at first */
    bool open;            /* set by the dialect when its handshake is complete */

    bool must_prove; /* who he is, before anything else is done for him */
    bool stranger;   /* he is another user of this machine */
    bool needs_tls;  /* and has none */
    struct ddpi_identity identity;
    char vouches_for[DDPI_JOB_MAX + 1]; /* as in struct ddpi_hello */
    /* Asked when the peer has said, and where it has to has proven, who it is, and before it is
     * told that it is welcome; NULL: all are. */
    ddp_status (*admit)(struct ddpi_session *session, struct ddp_error *err);
    struct ddpi_handshake handshake; /* until it is complete */
    struct ddpi_seals seals;

    /* For a dialect whose requests do not say how long they are: of the one that is being read. */
    size_t scanned;   /* bytes, 0: none is */
    uint32_t strings; /* that are to come */
};

static inline ddp_status ddpi_session_admit(struct ddpi_session *session, struct ddp_error *err)
{
    return session->admit != NULL ? session->admit(session, err) : DDP_OK;
}

enum ddpi_step_kind {
    DDPI_STEP_MORE,     /* nothing whole is there yet; @need bytes will be */
    DDPI_STEP_REQUEST,  /* @request, which points into the bytes */
    DDPI_STEP_ANSWERED, /* the dialect has dealt with it and maybe put an answer into the output */
    DDPI_STEP_CLOSE,    /* the peer broke a rule: the status and the error say which */
    DDPI_STEP_DENIED,   /* he is not who he says, or somebody is between: the error is for the log
                           only, the peer hears nothing but "denied", and that late */
};

struct ddpi_step {
    enum ddpi_step_kind kind;
    size_t used; /* bytes done with; of a request: once it has been applied */
    size_t need; /* MORE: from the first of the bytes on */
    struct ddpi_message request;
};

struct ddpi_dialect {
    uint8_t first_byte;
    bool tcpstore; /* its clients are PyTorch's: see kv.h; they cannot say who they are */

    /* What do the @len > 0 bytes begin with? DDP_OK but for DDPI_STEP_CLOSE and DENIED;
     * DDP_E_NOMEM too if @out takes no more. */
    ddp_status (*next)(struct ddpi_session *session, const uint8_t *bytes, size_t len,
                       struct ddpi_buf *out, struct ddpi_step *ret_step, struct ddp_error *err);

    /* The key that the request at the beginning of @bytes names, once the session is open, and how
     * many bytes the request has; 0 if that cannot be told at a glance. NULL: it never can. */
    size_t (*peek)(const struct ddpi_session *session, const uint8_t *bytes, size_t len,
                   struct ddpi_bytes *ret_key);

    /* Append to @out, the whole or, returning anything but DDP_OK, nothing. DDP_E_NOMEM: @out takes
     * no more; DDP_E_CLOSED: the only way to say it is to close the connection. */
    ddp_status (*put_reply)(struct ddpi_session *session, struct ddpi_buf *out,
                            const struct ddpi_message *reply);

    /* Say why the connection is about to be closed, if the dialect has words for it. */
    void (*put_farewell)(struct ddpi_session *session, struct ddpi_buf *out, ddp_status status,
                         const char *text);
};

extern const struct ddpi_dialect ddpi_dialect_native;
extern const struct ddpi_dialect ddpi_dialect_tcpstore;

#endif
