/*
 * certificate.h - a certificate and its key, made from a secret: all who have the secret make the
 * same two, and nobody else can. So they need no authority, and no file goes from one machine to
 * another.
 *
 * It is for programs that take nothing but certificates, such as etcd. The certificate is its own
 * authority: a peer that shows it has the key, and so the secret. It never expires, since clocks
 * differ.
 */
#ifndef DDPI_CERTIFICATE_H
#define DDPI_CERTIFICATE_H

#include "tls.h"

enum { DDPI_CERTIFICATE_PEM = 4096 };

struct ddpi_certificate {
    char certificate[DDPI_CERTIFICATE_PEM];
    char key[DDPI_CERTIFICATE_PEM]; /* wiped by the caller */
};

/*
 * Make both in PEM, for servers and clients at @hosts, @count names or addresses. Ed25519, whose
 * signatures are not random (RFC 8032), so the bytes depend on the arguments alone.
 *
 * Blocks for some ms while OpenSSL loads. DDP_E_INVALID: a host is neither a name nor an address.
 * DDP_E_UNSUPPORTED: this machine has no OpenSSL 3, or this build has no TLS. DDP_E_NOMEM.
 */
ddp_status ddpi_certificate_make(const uint8_t secret[DDPI_TLS_KEY_SIZE], const char *const *hosts,
                                 unsigned count, struct ddpi_certificate *ret,
                                 struct ddp_error *err);

#endif
