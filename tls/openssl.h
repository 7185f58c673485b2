/*
 * openssl.h - the functions of OpenSSL that the project calls, as pointers that are filled in when
 * the library is loaded. Their types come from OpenSSL's own headers, so the compiler checks each
 * call; nothing is linked.
 */
#ifndef DDPI_OPENSSL_H
#define DDPI_OPENSSL_H

#include <ddprun/status.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#if OPENSSL_VERSION_MAJOR < 3
#error "OpenSSL 3.0 or later is needed, or the build option tls=disabled"
#endif

/* All are in libssl, or in libcrypto, which libssl loads. */
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
    X(ERR_reason_error_string)               \
    X(X509_new)                              \
    X(X509_free)                             \
    X(X509_set_version)                      \
    X(X509_get_serialNumber)                 \
    X(X509_getm_notBefore)                   \
    X(X509_getm_notAfter)                    \
    X(X509_get_subject_name)                 \
    X(X509_set_issuer_name)                  \
    X(X509_set_pubkey)                       \
    X(X509_add_ext)                          \
    X(X509_sign)                             \
    X(X509_EXTENSION_free)                   \
    X(X509V3_EXT_conf)                       \
    X(X509_NAME_add_entry_by_txt)            \
    X(ASN1_INTEGER_set)                      \
    X(ASN1_TIME_set_string)                  \
    X(EVP_PKEY_new_raw_private_key)          \
    X(EVP_PKEY_free)                         \
    X(PEM_write_bio_X509)                    \
    X(PEM_write_bio_PrivateKey)

struct ddpi_openssl {
#define DDPI_OPENSSL_MEMBER(name) __typeof__(&name) name;
    DDPI_OPENSSL_MAP(DDPI_OPENSSL_MEMBER)
#undef DDPI_OPENSSL_MEMBER
};

/* Load OpenSSL, or use the copy that the process has already loaded. It is never unloaded, as it
 * keeps data of all threads. DDP_E_UNSUPPORTED: it is missing or of another version. */
ddp_status ddpi_openssl_load(struct ddpi_openssl *ret, struct ddp_error *err);

/* The pointer stored with SSL_set_ex_data(), for callbacks of OpenSSL, which get only @ssl. */
void *ddpi_openssl_data_of(const SSL *ssl);

#endif
