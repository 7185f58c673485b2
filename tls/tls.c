/*
 * tls.c - TLS 1.3 on OpenSSL. Owns the settings (an SSL_CTX) and, for each connection, the SSL and
 * the two buffers (BIOs) that it reads from and writes to.
 *
 * A server that shows a certificate instead of using the key is refused: nothing here could verify
 * it. A handshake that completes without the key counts as a failure.
 */
#include "tls.h"

#include "error.h"
#include "mem.h"
#include "openssl.h"

#include <string.h>

/* Both use SHA-256; a key is bound to its hash. */
#define CIPHERS "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"

static const unsigned char cipher_of_keys[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */

enum { PIECE = 4 * 1024 };

struct ddpi_tls_engine {
    struct ddpi_openssl lib;
    SSL_CTX *ctx;
};

struct ddpi_tls {
    const struct ddpi_openssl *lib;
    SSL *ssl; /* owns both BIOs */
    BIO *in;
    BIO *out;
    bool open;
    bool ended;              /* no more bytes are taken or given */
    size_t taken;            /* bytes, until it is open */
    struct ddpi_tls_key key; /* of a client, until it is open */
    ddpi_tls_find *find;     /* of a server; else NULL */
    void *find_ctx;
};

/* ---- keys ---- */

/* OpenSSL represents a key as a session to resume. */
static SSL_SESSION *session_of(const struct ddpi_openssl *lib, SSL *ssl,
                               const uint8_t secret[DDPI_TLS_KEY_SIZE])
{
    SSL_SESSION *session = lib->SSL_SESSION_new();
    if (session != NULL &&
        lib->SSL_SESSION_set1_master_key(session, secret, DDPI_TLS_KEY_SIZE) == 1 &&
        lib->SSL_SESSION_set_cipher(session, lib->SSL_CIPHER_find(ssl, cipher_of_keys)) == 1 &&
        lib->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    lib->SSL_SESSION_free(session);
    return NULL;
}

/* Callbacks of OpenSSL. 0 ends the handshake. 1 without a session continues without a key, which
 * then fails, as neither side has a certificate. */
static int use_key(SSL *ssl, const EVP_MD *hash, const unsigned char **ret_identity,
                   size_t *ret_len, SSL_SESSION **ret_session)
{
    (void)hash;
    const struct ddpi_tls *tls = ddpi_openssl_data_of(ssl);
    SSL_SESSION *session = tls != NULL ? session_of(tls->lib, ssl, tls->key.secret) : NULL;
    if (session == NULL)
        return 0;
    *ret_identity = (const unsigned char *)tls->key.identity;
    *ret_len = tls->key.identity_len;
    *ret_session = session;
    return 1;
}

static int find_psk(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **ret_session)
{
    uint8_t secret[DDPI_TLS_KEY_SIZE];
    const struct ddpi_tls *tls = ddpi_openssl_data_of(ssl);
    *ret_session = NULL;
    if (tls == NULL || tls->find == NULL)
        return 0;
    if (len <= DDPI_TLS_IDENTITY_MAX && tls->find(tls->find_ctx, identity, len, secret))
        *ret_session = session_of(tls->lib, ssl, secret);
    explicit_bzero(secret, sizeof secret);
    return 1;
}

/* ---- the engine ---- */

static bool configure_ctx(const struct ddpi_openssl *lib, SSL_CTX *ctx)
{
    lib->SSL_CTX_set_options(ctx,
                             SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    lib->SSL_CTX_ctrl(ctx, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    lib->SSL_CTX_ctrl(ctx, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);
    lib->SSL_CTX_set_psk_use_session_callback(ctx, use_key);
    lib->SSL_CTX_set_psk_find_session_callback(ctx, find_psk);
    char group[] = "X25519"; /* the parameter is not const; OpenSSL only reads it */
    return lib->SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
           lib->SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
           lib->SSL_CTX_ctrl(ctx, SSL_CTRL_SET_GROUPS_LIST, 0, group) == 1 &&
           lib->SSL_CTX_set_ciphersuites(ctx, CIPHERS) == 1 &&
           lib->SSL_CTX_set_num_tickets(ctx, 0) == 1;
}

ddp_status ddpi_tls_engine_create(struct ddpi_tls_engine **ret, struct ddp_error *err)
{
    struct ddpi_tls_engine *engine = ddpi_calloc(1, sizeof *engine);
    if (engine == NULL)
        return ddpi_error_nomem(err, sizeof *engine);
    ddp_status status = ddpi_openssl_load(&engine->lib, err);
    if (status == DDP_OK) {
        engine->lib.ERR_clear_error();
        engine->ctx = engine->lib.SSL_CTX_new(engine->lib.TLS_method());
        if (engine->ctx == NULL || !configure_ctx(&engine->lib, engine->ctx)) {
            const char *why = engine->lib.ERR_reason_error_string(engine->lib.ERR_peek_error());
            status = ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                    "OpenSSL has no TLS 1.3 with " CIPHERS " here (%s)",
                                    why != NULL ? why : "no reason is given");
        }
    }
    if (status == DDP_OK)
        *ret = engine;
    else
        ddpi_tls_engine_destroy(engine);
    return status;
}

void ddpi_tls_engine_destroy(struct ddpi_tls_engine *engine)
{
    if (engine == NULL)
        return;
    if (engine->ctx != NULL)
        engine->lib.SSL_CTX_free(engine->ctx);
    ddpi_free(engine);
}

/* ---- a connection's life ---- */

static bool create_ssl(struct ddpi_tls *tls, SSL_CTX *ctx)
{
    const struct ddpi_openssl *lib = tls->lib;
    lib->ERR_clear_error();
    tls->ssl = lib->SSL_new(ctx);
    tls->in = lib->BIO_new(lib->BIO_s_mem());
    tls->out = lib->BIO_new(lib->BIO_s_mem());
    if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL) {
        lib->BIO_free(tls->in);
        lib->BIO_free(tls->out);
        return false;
    }
    lib->SSL_set_bio(tls->ssl, tls->in, tls->out);
    return lib->SSL_set_ex_data(tls->ssl, 0, tls) == 1;
}

static ddp_status create_side(const struct ddpi_tls_engine *engine, struct ddpi_tls **ret,
                              struct ddp_error *err)
{
    struct ddpi_tls *tls = ddpi_calloc(1, sizeof *tls);
    if (tls == NULL)
        return ddpi_error_nomem(err, sizeof *tls);
    tls->lib = &engine->lib;
    if (!create_ssl(tls, engine->ctx)) {
        ddpi_tls_destroy(tls);
        return ddpi_error_nomem(err, sizeof *tls);
    }
    *ret = tls;
    return DDP_OK;
}

static ddp_status shake_hands(struct ddpi_tls *tls, struct ddp_error *err);

ddp_status ddpi_tls_connect(const struct ddpi_tls_engine *engine, const struct ddpi_tls_key *key,
                            struct ddpi_tls **ret, struct ddp_error *err)
{
    struct ddpi_tls *tls;
    ddp_status status = create_side(engine, &tls, err);
    if (status != DDP_OK)
        return status;
    tls->key = *key;
    tls->lib->SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, NULL); /* no certificate is accepted */
    tls->lib->SSL_set_connect_state(tls->ssl);
    status = shake_hands(tls, err);
    if (status == DDP_OK)
        *ret = tls;
    else
        ddpi_tls_destroy(tls);
    return status;
}

ddp_status ddpi_tls_accept(const struct ddpi_tls_engine *engine, ddpi_tls_find *find, void *ctx,
                           struct ddpi_tls **ret, struct ddp_error *err)
{
    struct ddpi_tls *tls;
    ddp_status status = create_side(engine, &tls, err);
    if (status != DDP_OK)
        return status;
    tls->find = find;
    tls->find_ctx = ctx;
    tls->lib->SSL_set_accept_state(tls->ssl);
    *ret = tls;
    return DDP_OK;
}

void ddpi_tls_destroy(struct ddpi_tls *tls)
{
    if (tls == NULL)
        return;
    if (tls->ssl != NULL)
        tls->lib->SSL_free(tls->ssl);
    explicit_bzero(tls, sizeof *tls);
    ddpi_free(tls);
}

bool ddpi_tls_is_open(const struct ddpi_tls *tls)
{
    return tls->open;
}

/* ---- failures ---- */

#define OTHER_KEY                                                                              \
    "the peer has another key; both ends need the same token, and keys made from it for this " \
    "store"

static ddp_status explain_tls_failure(const struct ddpi_tls *tls, struct ddp_error *err)
{
    static const struct {
        int reason;
        ddp_status status;
        const char *text;
    } known[] = {
        {SSL_R_TLSV1_ALERT_ACCESS_DENIED, DDP_E_DENIED,
         "the peer refuses TLS: it was started without it (--tls)"},
        {SSL_R_TLSV1_ALERT_DECRYPT_ERROR, DDP_E_DENIED, OTHER_KEY},
        {SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER, DDP_E_DENIED, OTHER_KEY},
        {SSL_R_BINDER_DOES_NOT_VERIFY, DDP_E_DENIED, OTHER_KEY},
        {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, DDP_E_DENIED, "the peer does not know this key"},
        {SSL_R_CERTIFICATE_VERIFY_FAILED, DDP_E_DENIED,
         "the peer does not know this key, and shows a certificate"},
        {SSL_R_WRONG_VERSION_NUMBER, DDP_E_PROTOCOL, "the peer does not speak TLS"},
        {SSL_R_HTTP_REQUEST, DDP_E_PROTOCOL, "the peer does not speak TLS"},
        {SSL_R_HTTPS_PROXY_REQUEST, DDP_E_PROTOCOL, "the peer does not speak TLS"},
        {ERR_R_MALLOC_FAILURE, DDP_E_NOMEM, "out of memory"},
    };
    unsigned long code = tls->lib->ERR_peek_error();
    const char *why = tls->lib->ERR_reason_error_string(code);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].reason == ERR_GET_REASON(code))
            return ddpi_error_set(err, known[i].status, "TLS: %s", known[i].text);
    return ddpi_error_set(err, DDP_E_DENIED,
                          tls->open ? "TLS: a record failed its integrity check: it was changed, "
                                      "dropped or repeated on the way (%s)"
                                    : "TLS: the peer did not prove that it has the key (%s)",
                          why != NULL ? why : "no reason is given");
}

/* The status of a call that returned @result, not 1. DDP_OK: it needs more bytes first. */
static ddp_status check_result(struct ddpi_tls *tls, int result, struct ddp_error *err)
{
    switch (tls->lib->SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return DDP_OK;
    case SSL_ERROR_ZERO_RETURN:
        return ddpi_error_set(err, DDP_E_CLOSED, "the peer closed the connection");
    default:
        return explain_tls_failure(tls, err);
    }
}

/* ---- receiving ---- */

static ddp_status shake_hands(struct ddpi_tls *tls, struct ddp_error *err)
{
    tls->lib->ERR_clear_error();
    int result = tls->lib->SSL_do_handshake(tls->ssl);
    ddp_status status = result == 1 ? DDP_OK : check_result(tls, result, err);
    if (status != DDP_OK)
        return status;
    if (result == 1 && tls->lib->SSL_session_reused(tls->ssl) == 1) {
        tls->open = true;
        explicit_bzero(&tls->key, sizeof tls->key);
        return DDP_OK;
    }
    if (result != 1 && tls->taken <= DDPI_TLS_HANDSHAKE_MAX)
        return DDP_OK;
    return result == 1
               ? ddpi_error_set(err, DDP_E_DENIED,
                                "TLS: the peer did not prove that it has the key")
               : ddpi_error_set(err, DDP_E_PROTOCOL,
                                "TLS: the peer sent %zu bytes without completing a handshake",
                                tls->taken);
}

static ddp_status read_plain(struct ddpi_tls *tls, struct ddpi_buf *plain, struct ddp_error *err)
{
    uint8_t piece[PIECE];
    ddp_status status = DDP_OK;
    for (size_t len = 0; status == DDP_OK;) {
        tls->lib->ERR_clear_error();
        int result = tls->lib->SSL_read_ex(tls->ssl, piece, sizeof piece, &len);
        if (result != 1) {
            status = check_result(tls, result, err);
            break;
        }
        if (!ddpi_buf_append(plain, piece, len))
            status = ddpi_error_nomem(err, len);
    }
    explicit_bzero(piece, sizeof piece);
    return status;
}

/* Move the bytes that OpenSSL has written to @wire. */
static bool drain_ciphertext(struct ddpi_tls *tls, struct ddpi_buf *wire)
{
    long pending = tls->lib->BIO_ctrl(tls->out, BIO_CTRL_PENDING, 0, NULL);
    if (pending <= 0)
        return true;
    uint8_t *room = ddpi_buf_reserve(wire, (size_t)pending);
    if (room == NULL || tls->lib->BIO_read(tls->out, room, (int)pending) != pending)
        return false;
    ddpi_buf_added(wire, (size_t)pending);
    return true;
}

static ddp_status tls_ended_error(struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_CLOSED, "TLS: the connection has ended");
}

static ddp_status take_records(struct ddpi_tls *tls, const void *bytes, size_t len,
                               struct ddpi_buf *plain, struct ddpi_buf *wire, struct ddp_error *err)
{
    if (len > INT_MAX || tls->lib->BIO_write(tls->in, bytes, (int)len) != (int)len)
        return ddpi_error_nomem(err, len);
    ddp_status status = DDP_OK;
    if (!tls->open) {
        tls->taken += len;
        status = shake_hands(tls, err);
    }
    if (status == DDP_OK && tls->open)
        status = read_plain(tls, plain, err);
    if (!drain_ciphertext(tls, wire) && status == DDP_OK)
        status = ddpi_error_nomem(err, len);
    return status;
}

ddp_status ddpi_tls_take(struct ddpi_tls *tls, const void *bytes, size_t len,
                         struct ddpi_buf *plain, struct ddpi_buf *wire, struct ddp_error *err)
{
    if (tls->ended)
        return tls_ended_error(err);
    ddp_status status = take_records(tls, bytes, len, plain, wire, err);
    tls->ended = status != DDP_OK; /* also after DDP_E_NOMEM, as received bytes are lost */
    return status;
}

/* ---- sending ---- */

ddp_status ddpi_tls_put(struct ddpi_tls *tls, struct ddpi_buf *plain, size_t most,
                        struct ddpi_buf *wire, struct ddp_error *err)
{
    if (tls->ended)
        return tls_ended_error(err);
    bool room = drain_ciphertext(tls, wire);
    while (room && tls->open && most > 0 && ddpi_buf_len(plain) > 0) {
        size_t len = ddpi_buf_len(plain), written = 0;
        len = len < most ? len : most;
        len = len < DDPI_TLS_RECORD_MAX ? len : DDPI_TLS_RECORD_MAX;
        tls->lib->ERR_clear_error();
        room = tls->lib->SSL_write_ex(tls->ssl, ddpi_buf_head(plain), len, &written) == 1 &&
               drain_ciphertext(tls, wire);
        ddpi_buf_consume(plain, written);
        most -= written;
    }
    if (room)
        return DDP_OK;
    tls->ended = true;
    return ddpi_error_nomem(err, DDPI_TLS_RECORD_MAX);
}
