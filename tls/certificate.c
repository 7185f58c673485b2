/*
 * certificate.c - see certificate.h. Owns nothing.
 */
#include "certificate.h"

#include "error.h"
#include "openssl.h"

#include <stdio.h>
#include <string.h>

enum { ALT_NAMES = 2048 };

/* Addresses and names, as OpenSSL writes them. They are from a list of hosts, but another program
 * gave it: nothing may end a name and begin another field. */
static ddp_status put_alt_names(const char *const *hosts, unsigned count, char text[ALT_NAMES],
                                struct ddp_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-:";
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < count; i++) {
        size_t len = strspn(hosts[i], allowed);
        bool number = strspn(hosts[i], "0123456789.") == len || strchr(hosts[i], ':') != NULL;
        if (len == 0 || hosts[i][len] != '\0')
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "'%s' is neither a name nor an address for a certificate",
                                  hosts[i]);
        used += (size_t)snprintf(text + used, ALT_NAMES - used, "%s%s:%s", i > 0 ? "," : "",
                                 number ? "IP" : "DNS", hosts[i]);
        if (used >= ALT_NAMES)
            return ddpi_error_set(err, DDP_E_INVALID, "too many names for one certificate");
    }
    return DDP_OK;
}

static bool add_extension(const struct ddpi_openssl *ssl, X509 *x509, const char *name,
                          const char *value)
{
    X509_EXTENSION *extension = ssl->X509V3_EXT_conf(NULL, NULL, name, value);
    bool added = extension != NULL && ssl->X509_add_ext(x509, extension, -1) == 1;
    ssl->X509_EXTENSION_free(extension);
    return added;
}

/* From 1970 to the last day that there is (RFC 5280). */
static bool set_fields(const struct ddpi_openssl *ssl, X509 *x509, EVP_PKEY *key)
{
    X509_NAME *name = ssl->X509_get_subject_name(x509);
    return ssl->X509_set_version(x509, X509_VERSION_3) == 1 &&
           ssl->ASN1_INTEGER_set(ssl->X509_get_serialNumber(x509), 1) == 1 &&
           ssl->ASN1_TIME_set_string(ssl->X509_getm_notBefore(x509), "19700101000000Z") == 1 &&
           ssl->ASN1_TIME_set_string(ssl->X509_getm_notAfter(x509), "99991231235959Z") == 1 &&
           ssl->X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                           (const unsigned char *)"ddprun", -1, -1, 0) == 1 &&
           ssl->X509_set_issuer_name(x509, name) == 1 && ssl->X509_set_pubkey(x509, key) == 1;
}

static bool fill_in(const struct ddpi_openssl *ssl, X509 *x509, EVP_PKEY *key,
                    const char *alt_names)
{
    return set_fields(ssl, x509, key) &&
           add_extension(ssl, x509, "basicConstraints", "critical,CA:TRUE") &&
           add_extension(ssl, x509, "keyUsage", "critical,digitalSignature,keyCertSign") &&
           add_extension(ssl, x509, "extendedKeyUsage", "serverAuth,clientAuth") &&
           add_extension(ssl, x509, "subjectAltName", alt_names) &&
           ssl->X509_sign(x509, key, NULL) > 0;
}

static bool read_pem(const struct ddpi_openssl *ssl, BIO *bio, char text[DDPI_CERTIFICATE_PEM])
{
    int len = ssl->BIO_read(bio, text, DDPI_CERTIFICATE_PEM - 1);
    text[len > 0 ? len : 0] = '\0';
    return len > 0 && len < DDPI_CERTIFICATE_PEM - 1;
}

static bool write_pem(const struct ddpi_openssl *ssl, X509 *x509, EVP_PKEY *key,
                      struct ddpi_certificate *ret)
{
    BIO *bio = ssl->BIO_new(ssl->BIO_s_mem());
    bool written = bio != NULL && ssl->PEM_write_bio_X509(bio, x509) == 1 &&
                   read_pem(ssl, bio, ret->certificate) &&
                   ssl->PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                   read_pem(ssl, bio, ret->key);
    ssl->BIO_free(bio);
    return written;
}

ddp_status ddpi_certificate_make(const uint8_t secret[DDPI_TLS_KEY_SIZE], const char *const *hosts,
                                 unsigned count, struct ddpi_certificate *ret,
                                 struct ddp_error *err)
{
    struct ddpi_openssl ssl;
    char alt_names[ALT_NAMES];
    ddp_status status = put_alt_names(hosts, count, alt_names, err);
    if (status == DDP_OK)
        status = ddpi_openssl_load(&ssl, err);
    if (status != DDP_OK)
        return status;
    EVP_PKEY *key =
        ssl.EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, DDPI_TLS_KEY_SIZE);
    X509 *x509 = ssl.X509_new();
    if (key == NULL || x509 == NULL)
        status = ddpi_error_nomem(err, DDPI_CERTIFICATE_PEM);
    else if (!fill_in(&ssl, x509, key, alt_names))
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "OpenSSL makes no certificate for these hosts: %s", alt_names);
    else if (!write_pem(&ssl, x509, key, ret))
        status = ddpi_error_nomem(err, DDPI_CERTIFICATE_PEM);
    ssl.X509_free(x509);
    ssl.EVP_PKEY_free(key);
    ssl.ERR_clear_error();
    return status;
}
