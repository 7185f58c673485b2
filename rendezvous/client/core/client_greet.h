/*
 * client_greet.h - the client's side of the greeting: preamble and HELLO out, preamble and WELCOME
 * in, and where something is to be proven CHALLENGE and PROOF between them. Pure: bytes in, bytes
 * out; the connection and its deadlines are the caller's.
 */
#ifndef DDPI_CLIENT_GREET_H
#define DDPI_CLIENT_GREET_H

#include "proto.h"
#include "tls.h"

/* Who the client is, and by what it proves that. */
struct ddpi_greet_terms {
    const struct ddpi_identity *identity;
    const struct ddpi_credential *credential; /* NULL: nothing is proven, by either side; else it
                                                 stays until the greeting is done */
    const struct ddpi_tls_engine *tls; /* by which all goes, with the key of both; NULL: none */
    void (*random)(void *bytes, size_t len);
    const char *vouches_for; /* as in struct ddpi_hello; NULL: "" */
};

/* One greeting; a new connection begins a new one. It may hold a secret until it is done, or the
 * caller wipes it. */
struct ddpi_greet {
    unsigned phase;
    uint16_t version;                         /* that is spoken */
    const struct ddpi_credential *credential; /* NULL: it proves nothing */
    struct ddpi_identity identity;
    struct ddpi_handshake handshake;
    uint8_t
        hello[256]; /* as it was sent: in the transcript the server's preamble comes before it */
    size_t hello_len;
    bool refusal_proven;         /* it has failed, and the reason is that of who has our key */
    struct ddpi_welcome welcome; /* once it is done */
    struct ddpi_seals seals;     /* the same: of what follows in both directions */
};

/* Put what the client says first into @out, which is empty. DDP_E_NOMEM: @out does not take it.
 * DDP_E_DENIED: the credential is that of another identity. */
ddp_status ddpi_greet_begin(struct ddpi_greet *greet, const struct ddpi_greet_terms *terms,
                            struct ddpi_buf *out, struct ddp_error *err);

/*
 * Take from @in what has come, and put into @out what is to be said to it.
 *
 * On DDP_OK *@ret_need is 0 if the greeting is done, and what is left in @in is no part of it; else
 * how many bytes @in must have before it makes sense to call again. Any other status is the
 * connection's end: the server's own reason, DDP_E_PROTOCOL, or DDP_E_DENIED if the server could
 * not prove that it knows the key, or the key is that of another store.
 */
ddp_status ddpi_greet_take(struct ddpi_greet *greet, struct ddpi_buf *in, struct ddpi_buf *out,
                           size_t *ret_need, struct ddp_error *err);

#endif
