/*
 * client_greet.h - the client's side of the greeting: preamble and HELLO out, preamble and WELCOME
 * in, and with a token CHALLENGE in and PROOF out between them. Pure: bytes in, bytes out; the
 * caller has the connection and its deadlines.
 */
#ifndef DDPI_CLIENT_GREET_H
#define DDPI_CLIENT_GREET_H

#include "proto.h"
#include "tls.h"

/* The client's identity and its proof. */
struct ddpi_greet_terms {
    const struct ddpi_identity *identity;
    const struct ddpi_credential *credential; /* NULL: neither side proves anything; else it must
                                                 stay until the greeting is done */
    const struct ddpi_tls_engine *tls;        /* NULL: no TLS */
    void (*random)(void *bytes, size_t len);
    const char *vouches_for; /* as in struct ddpi_hello; NULL: "" */
};

/* One greeting, for one connection. It may hold a secret until it is done; if it is not completed,
 * the caller wipes it. */
struct ddpi_greet {
    unsigned phase;
    uint16_t version;                         /* of the protocol */
    const struct ddpi_credential *credential; /* NULL: it proves nothing */
    struct ddpi_identity identity;
    struct ddpi_handshake handshake;
    uint8_t
        hello[256]; /* as it was sent: in the transcript the server's preamble comes before it */
    size_t hello_len;
    bool refusal_proven;         /* the server refused us, and has proven that it has our key */
    struct ddpi_welcome welcome; /* once it is done */
    struct ddpi_seals seals;     /* the same: of what follows in both directions */
};

/* Write the client's first bytes into the empty @out. DDP_E_NOMEM: it has no room. DDP_E_DENIED:
 * the credential is for another identity. */
ddp_status ddpi_greet_begin(struct ddpi_greet *greet, const struct ddpi_greet_terms *terms,
                            struct ddpi_buf *out, struct ddp_error *err);

/*
 * Take the server's bytes from @in, and write the client's next bytes into @out.
 *
 * On DDP_OK *@ret_need is 0 if the greeting is done, and the rest of @in follows it; else the
 * number of bytes that @in must have before the next call. Any other status ends the connection:
 * the server's own reason, DDP_E_PROTOCOL, or DDP_E_DENIED if the server could not prove that it
 * has the key, or the key is for another store.
 */
ddp_status ddpi_greet_take(struct ddpi_greet *greet, struct ddpi_buf *in, struct ddpi_buf *out,
                           size_t *ret_need, struct ddp_error *err);

#endif
