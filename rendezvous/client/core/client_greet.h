/*
 * client_greet.h - the client's side of the greeting: it sends a preamble and HELLO, and receives a
 * preamble and WELCOME; with a token, it receives CHALLENGE and sends PROOF between them. Pure:
 * bytes in, bytes out; the caller owns the connection and its deadlines.
 */
#ifndef DDPI_CLIENT_GREET_H
#define DDPI_CLIENT_GREET_H

#include "proto.h"
#include "tls.h"

/* The client's identity and the means to prove it. */
struct ddpi_greet_terms {
    const struct ddpi_identity *identity;
    const struct ddpi_credential *credential; /* NULL: neither side proves anything; else it must
                                                 stay until the greeting is done */
    const struct ddpi_tls_engine *tls;        /* NULL: no TLS */
    void (*random)(void *bytes, size_t len);
    const char *vouches_for; /* as in struct ddpi_hello; NULL: "" */
};

/* The greeting of one connection. It may hold a secret until it is done; if it does not complete,
 * the caller wipes it. */
struct ddpi_greet {
    unsigned phase;
    uint16_t version;                         /* of the protocol, once chosen */
    const struct ddpi_credential *credential; /* NULL: no proof */
    struct ddpi_identity identity;
    struct ddpi_handshake handshake;
    uint8_t hello[256]; /* as sent; follows the server's preamble in the transcript */
    size_t hello_len;
    bool refusal_proven;         /* the server refused, with proof that it has the key */
    struct ddpi_welcome welcome; /* once it is done */
    struct ddpi_seals seals;     /* once it is done: for all later frames */
};

/* Write the client's first bytes into the empty @out. DDP_E_NOMEM: @out is full. DDP_E_DENIED: the
 * credential is for another identity. */
ddp_status ddpi_greet_begin(struct ddpi_greet *greet, const struct ddpi_greet_terms *terms,
                            struct ddpi_buf *out, struct ddp_error *err);

/*
 * Take the server's bytes from @in, and write the client's next bytes into @out.
 *
 * On DDP_OK *@ret_need is 0 once the greeting is done, and @in then holds the bytes after it; else
 * it is the number of bytes that @in must hold before the next call. Any other status ends the
 * connection: the status that the server sent, DDP_E_PROTOCOL, or DDP_E_DENIED if the server cannot
 * prove that it has the key, or the key is for another store.
 */
ddp_status ddpi_greet_take(struct ddpi_greet *greet, struct ddpi_buf *in, struct ddpi_buf *out,
                           size_t *ret_need, struct ddp_error *err);

#endif
