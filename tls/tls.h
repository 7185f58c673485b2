/*
 * tls.h - one side of a TLS 1.3 connection whose two ends have a key in common: ciphertext in,
 * plaintext and ciphertext out. No I/O, no clock; no certificates, tickets, early data or
 * renegotiation, and each connection has a secret of its own (psk_dhe_ke): what was recorded stays
 * secret when the key becomes known later.
 *
 * All of it is OpenSSL's (3.0 or later), loaded by the first ddpi_tls_engine_create() of a process:
 * who never asks for TLS pays nothing for it.
 */
#ifndef DDPI_TLS_H
#define DDPI_TLS_H

#include "buf.h"

#include <ddprun/status.h>

enum {
    DDPI_TLS_KEY_SIZE = 32,
    DDPI_TLS_IDENTITY_MAX = 160,
    DDPI_TLS_FIRST_BYTE = 0x16,        /* of what whoever connects says */
    DDPI_TLS_HEADER_SIZE = 5,          /* of a record; its last two bytes are the length */
    DDPI_TLS_HANDSHAKE_MAX = 4 * 1024, /* bytes that a peer may send before it has proven its key */
    DDPI_TLS_RECORD_MAX = 16 * 1024,   /* bytes of plaintext */
};

/* A key in common, and by which name who connects tells the other side which one it is. */
struct ddpi_tls_key {
    char identity[DDPI_TLS_IDENTITY_MAX];
    size_t identity_len;
    uint8_t secret[DDPI_TLS_KEY_SIZE]; /* whoever has filled it in wipes it */
};

/* The library, and what all connections of one owner have in common. */
struct ddpi_tls_engine;
struct ddpi_tls;

/* DDP_E_UNSUPPORTED: there is no TLS on this machine, or in this build. Blocks while it is loaded,
 * some ms. */
ddp_status ddpi_tls_engine_create(struct ddpi_tls_engine **ret, struct ddp_error *err);
/* After all its connections; NULL is allowed. */
void ddpi_tls_engine_destroy(struct ddpi_tls_engine *engine);

/* Whoever connects, with @key, which is copied; its first words are there for ddpi_tls_put(). */
ddp_status ddpi_tls_connect(const struct ddpi_tls_engine *engine, const struct ddpi_tls_key *key,
                            struct ddpi_tls **ret, struct ddp_error *err);
/* Whoever is connected to; @find is asked for the key of an identity, with @ctx. False: there is no
 * such identity. */
typedef bool ddpi_tls_find(void *ctx, const uint8_t *identity, size_t len,
                           uint8_t ret_secret[DDPI_TLS_KEY_SIZE]);
ddp_status ddpi_tls_accept(const struct ddpi_tls_engine *engine, ddpi_tls_find *find, void *ctx,
                           struct ddpi_tls **ret, struct ddp_error *err);
/* NULL is allowed. */
void ddpi_tls_destroy(struct ddpi_tls *tls);

/* Both sides have proven that they have the key. */
bool ddpi_tls_is_open(const struct ddpi_tls *tls);

/*
 * The @len bytes have come: append what they say to @plain, and what is to be said to that to
 * @wire. Whatever is not DDP_OK is the connection's end,
 * and @wire may have a last word to the peer:
 * DDP_E_DENIED: the peer has not proven the key, or somebody between has changed, dropped or
 * repeated something; DDP_E_PROTOCOL: it does not speak TLS, or speaks too long before it proves
 * anything; DDP_E_CLOSED: it says that there is no more, and nobody else could; DDP_E_NOMEM.
 */
ddp_status ddpi_tls_take(struct ddpi_tls *tls, const void *bytes, size_t len,
                         struct ddpi_buf *plain, struct ddpi_buf *wire, struct ddp_error *err);

/*
 * Move from @plain to @wire, sealed, at most @most bytes; nothing as long as it is not open but
 * what the handshake has to say. DDP_E_NOMEM: @wire takes no more, and the connection has to end.
 */
ddp_status ddpi_tls_put(struct ddpi_tls *tls, struct ddpi_buf *plain, size_t most,
                        struct ddpi_buf *wire, struct ddp_error *err);

/* The word that ends the connection of a peer who speaks TLS where nobody is asked for it. */
enum { DDPI_TLS_REFUSAL_SIZE = 7 };
extern const uint8_t ddpi_tls_refusal[DDPI_TLS_REFUSAL_SIZE];

#endif
