/*
 * tls.h - one side of a TLS 1.3 connection whose two ends share a key (PSK): ciphertext in,
 * plaintext and ciphertext out. No I/O, no clock; no certificates, tickets, early data or
 * renegotiation. Each connection has its own secret (psk_dhe_ke), so recorded traffic stays secret
 * even if the key leaks later.
 *
 * OpenSSL (3.0 or later) does the work. The first ddpi_tls_engine_create() of a process loads it,
 * so programs that do not use TLS do not pay for it.
 */
#ifndef DDPI_TLS_H
#define DDPI_TLS_H

#include "buf.h"

#include <ddprun/status.h>

enum {
    DDPI_TLS_KEY_SIZE = 32,
    DDPI_TLS_IDENTITY_MAX = 160,
    DDPI_TLS_FIRST_BYTE = 0x16,        /* of a ClientHello */
    DDPI_TLS_HEADER_SIZE = 5,          /* of a record; its last two bytes are the length */
    DDPI_TLS_HANDSHAKE_MAX = 4 * 1024, /* bytes that a peer may send before it has proven its key */
    DDPI_TLS_RECORD_MAX = 16 * 1024,   /* bytes of plaintext */
};

/* A shared key, and the name by which the client tells the server which key it uses. */
struct ddpi_tls_key {
    char identity[DDPI_TLS_IDENTITY_MAX];
    size_t identity_len;
    uint8_t secret[DDPI_TLS_KEY_SIZE]; /* wiped by the code that filled it in */
};

/* The loaded library and the settings that all connections of one owner share. */
struct ddpi_tls_engine;
struct ddpi_tls;

/* Blocks for some ms while OpenSSL loads. DDP_E_UNSUPPORTED: this machine has no OpenSSL 3, or this
 * build has no TLS. */
ddp_status ddpi_tls_engine_create(struct ddpi_tls_engine **ret, struct ddp_error *err);
/* Destroy all its connections first; NULL is allowed. */
void ddpi_tls_engine_destroy(struct ddpi_tls_engine *engine);

/* The client's side, with @key, which is copied. ddpi_tls_put() then gives its ClientHello. */
ddp_status ddpi_tls_connect(const struct ddpi_tls_engine *engine, const struct ddpi_tls_key *key,
                            struct ddpi_tls **ret, struct ddp_error *err);
/* The server's side. It calls @find with @ctx for the key of an identity; @find returns false if
 * the identity is unknown. */
typedef bool ddpi_tls_find(void *ctx, const uint8_t *identity, size_t len,
                           uint8_t ret_secret[DDPI_TLS_KEY_SIZE]);
ddp_status ddpi_tls_accept(const struct ddpi_tls_engine *engine, ddpi_tls_find *find, void *ctx,
                           struct ddpi_tls **ret, struct ddp_error *err);
/* NULL is allowed. */
void ddpi_tls_destroy(struct ddpi_tls *tls);

/* True once the handshake is complete: both sides have proven that they have the key. */
bool ddpi_tls_is_open(const struct ddpi_tls *tls);

/*
 * Process @len received bytes: append their plaintext to @plain, and any answer of the handshake to
 * @wire. Any status but DDP_OK ends the connection; @wire may then hold an alert for the peer.
 * DDP_E_DENIED: the peer has not proven the key, or a record was changed, dropped or repeated on
 * the way. DDP_E_PROTOCOL: the peer does not speak TLS, or its handshake is too long. DDP_E_CLOSED:
 * the peer closed the connection, which only the owner of the key can do. DDP_E_NOMEM.
 */
ddp_status ddpi_tls_take(struct ddpi_tls *tls, const void *bytes, size_t len,
                         struct ddpi_buf *plain, struct ddpi_buf *wire, struct ddp_error *err);

/*
 * Encrypt at most @most bytes of @plain into @wire. Until the connection is open, only bytes of the
 * handshake are written. DDP_E_NOMEM: @wire is full, and the connection has to end.
 */
ddp_status ddpi_tls_put(struct ddpi_tls *tls, struct ddpi_buf *plain, size_t most,
                        struct ddpi_buf *wire, struct ddp_error *err);

/* The alert that refuses a peer that speaks TLS to a server without it. */
enum { DDPI_TLS_REFUSAL_SIZE = 7 };
extern const uint8_t ddpi_tls_refusal[DDPI_TLS_REFUSAL_SIZE];

#endif
