/*
 * tls_key.h - by which key, and by which name for it, the peers of the native dialect speak TLS.
 * Pure.
 *
 * The key follows from that of the client's identity (proof.h), and the name says whose it is, as
 * text: "ddprun 1 ROLE JOB EPOCH STORE", '-' for no job. It is sent in clear, and is no secret. Who
 * has the token itself may not know yet which store he will meet, and says 0.
 */
#ifndef DDPI_TLS_KEY_H
#define DDPI_TLS_KEY_H

#include "proof.h"
#include "tls.h"

/* The client's: *@ret is to be wiped. DDP_E_DENIED: the credential is that of another identity. */
ddp_status ddpi_tls_key_make(const struct ddpi_credential *credential,
                             const struct ddpi_identity *identity, struct ddpi_tls_key *ret,
                             struct ddp_error *err);

/* Of the server of the store @store: the secret for what a client calls itself. False: nobody is
 * called that here. */
bool ddpi_tls_key_find(const struct ddpi_credential *token, uint64_t store, const uint8_t *name,
                       size_t len, uint8_t ret_secret[DDPI_TLS_KEY_SIZE]);

#endif
