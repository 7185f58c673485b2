/*
 * dialect.h - the interface between a connection and a protocol. Each dialect is one codec file and
 * one row in the list of conn.c; the first byte of a connection selects the dialect.
 *
 * A dialect turns bytes into steps and replies into bytes. It does no I/O and keeps no bytes; its
 * state between steps is in struct ddpi_dialect_state.
 */
#ifndef DDPI_DIALECT_H
#define DDPI_DIALECT_H

#include "kv.h"
#include "proof.h"

/* Which clients must authenticate; shared by the connections of a server. */
struct ddpi_gate {
    const struct ddpi_credential *token; /* NULL: none, so no client can authenticate */
    bool open_to_loopback; /* this user's processes on this machine need not authenticate, ... */
    bool open_to_users;    /* ... nor those of its other users */
    bool open_to_all;
    bool tcpstore_in_clear; /* TCPStore clients are exempt from TLS */
    void (*random)(void *bytes, size_t len);
};

/* What a dialect knows of one connection. */
struct ddpi_dialect_state {
    const struct ddpi_kv_limits *limits;
    const struct ddpi_gate *gate;
    uint64_t incarnation; /* of the store */
    unsigned phase;       /* the dialect's own; 0 at first */
    bool open;            /* set by the dialect when its handshake is complete */

    bool must_authenticate; /* the peer must authenticate first */
    bool other_user;        /* the peer is another user of this machine */
    bool needs_tls;         /* the peer must speak TLS, and does not yet */
    struct ddpi_identity identity;
    char vouches_for[DDPI_JOB_MAX + 1]; /* as in struct ddpi_hello */
    /* Called when the peer has named its identity, and proven it if it must, before it is welcomed;
     * NULL: all are admitted. */
    ddp_status (*admit)(struct ddpi_dialect_state *state, struct ddp_error *err);
    struct ddpi_handshake handshake; /* until it is complete */
    struct ddpi_seals seals;

    /* For a dialect whose requests do not carry their length: of the one being read. */
    size_t scanned;   /* bytes; 0: none is being read */
    uint32_t strings; /* still to come */
    uint32_t keys;    /* of a MULTI_GET, all of whose bytes are there: still to be served */
};

static inline ddp_status ddpi_dialect_admit(struct ddpi_dialect_state *state, struct ddp_error *err)
{
    return state->admit != NULL ? state->admit(state, err) : DDP_OK;
}

enum ddpi_dialect_step_kind {
    DDPI_DIALECT_MORE,     /* the frame is incomplete; @need bytes are needed */
    DDPI_DIALECT_REQUEST,  /* @request, which points into the bytes */
    DDPI_DIALECT_ANSWERED, /* the dialect has handled it and may have written to the output */
    DDPI_DIALECT_CLOSE,    /* the peer broke a rule: the status and the error say which */
    DDPI_DIALECT_DENIED,   /* authentication failed, or the connection is being intercepted: the
                              error is for the log only; the peer is told "denied", after a delay */
};

struct ddpi_dialect_step {
    enum ddpi_dialect_step_kind kind;
    size_t used; /* bytes to skip; of a request: after it has been applied */
    size_t need; /* MORE: from the first of the bytes on */
    struct ddpi_message request;
};

static inline ddp_status ddpi_dialect_step_more(struct ddpi_dialect_step *step, size_t need)
{
    step->kind = DDPI_DIALECT_MORE;
    step->need = need;
    return DDP_OK;
}

struct ddpi_dialect {
    uint8_t first_byte;
    bool tcpstore; /* its clients are PyTorch's (see kv.h), which cannot authenticate */

    /* What the @len > 0 bytes begin with. The status is DDP_OK, or the reason for CLOSE or DENIED;
     * DDP_E_NOMEM too if @out is full. */
    ddp_status (*next)(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                       struct ddpi_buf *out, struct ddpi_dialect_step *ret_step,
                       struct ddp_error *err);

    /* The key of the request at the beginning of @bytes, once the handshake is complete. Returns
     * the length of the request; 0: unknown without parsing it. NULL: always unknown. */
    size_t (*peek)(const struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                   struct ddpi_bytes *ret_key);

    /* Append all of @reply to @out, or nothing on failure. DDP_E_NOMEM: @out is full; DDP_E_CLOSED:
     * the protocol cannot express it except by closing the connection. */
    ddp_status (*put_reply)(struct ddpi_dialect_state *state, struct ddpi_buf *out,
                            const struct ddpi_message *reply);

    /* Tell the peer why the connection is about to be closed. NULL: the protocol cannot. */
    void (*put_farewell)(struct ddpi_dialect_state *state, struct ddpi_buf *out, ddp_status status,
                         const char *text);
};

extern const struct ddpi_dialect ddpi_dialect_native;
extern const struct ddpi_dialect ddpi_dialect_tcpstore;

#endif
