/*
 * openssl.h - which functions of OpenSSL are used, and where they are once they are loaded. The
 * types are those of OpenSSL's own headers, so that the compiler checks each call; nothing is
 * linked.
 */
#ifndef DDPI_OPENSSL_H
#define DDPI_OPENSSL_H

#include <ddprun/status.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#if OPENSSL_VERSION_MAJOR < 3
#error "OpenSSL 3.0 or later is needed, or the build option tls=disabled"
#endif

/* All are of libssl or of libcrypto, which that brings. */
#define DDPI_OPENSSL_MAP(X)                  \
    X(OPENSSL_init_ssl)                      \
    X(TLS_method)                            \
    X(SSL_CTX_new)                           \
    X(SSL_CTX_free)                          \
    X(SSL_CTX_ctrl)                          \
    X(SSL_CTX_set_options)                   \
    X(SSL_CTX_set_ciphersuites)              \
    X(SSL_CTX_set_num_tickets)               \
    X(SSL_CTX_set_psk_find_session_callback) \
    X(SSL_CTX_set_psk_use_session_callback)  \
    X(SSL_new)                               \
    X(SSL_free)                              \
    X(SSL_set_ex_data)                       \
    X(SSL_get_ex_data)                       \
    X(SSL_set_bio)                           \
    X(SSL_set_connect_state)                 \
    X(SSL_set_accept_state)                  \
    X(SSL_set_verify)                        \
    X(SSL_do_handshake)                      \
    X(SSL_session_reused)                    \
    X(SSL_read_ex)                           \
    X(SSL_write_ex)                          \
    X(SSL_get_error)                         \
    X(SSL_CIPHER_find)                       \
    X(SSL_SESSION_new)                       \
    X(SSL_SESSION_free)                      \
    X(SSL_SESSION_set1_master_key)           \
    X(SSL_SESSION_set_cipher)                \
    X(SSL_SESSION_set_protocol_version)      \
    X(BIO_s_mem)                             \
    X(BIO_new)                               \
    X(BIO_free)                              \
    X(BIO_ctrl)                              \
    X(BIO_read)                              \
    X(BIO_write)                             \
    X(ERR_peek_error)                        \
    X(ERR_clear_error)                       \
    X(ERR_reason_error_string)

struct ddpi_openssl {
    void *library;
#define DDPI_OPENSSL_MEMBER(name) __typeof__(&name) name;
    DDPI_OPENSSL_MAP(DDPI_OPENSSL_MEMBER)
#undef DDPI_OPENSSL_MEMBER
};

/* Load it; what is in the process already is used. It is never unloaded, as it keeps data of all
 * threads. DDP_E_UNSUPPORTED: it is not there, or of another version. */
ddp_status ddpi_openssl_load(struct ddpi_openssl *ret, struct ddp_error *err);

/* For a callback of OpenSSL, which is given nothing but @ssl: what was hung on it as its data. */
void *ddpi_openssl_data_of(const SSL *ssl);

#endif
