/*
 * tls_key.h - the keys with which peers of the native dialect speak TLS, and their names. Pure.
 *
 * The key is derived from that of the client's identity (proof.h). Its name is the text "ddprun 1
 * ROLE JOB EPOCH STORE", with '-' for no job; it is sent in clear, and is not secret. A client that
 * has the token itself may not know the number of the store yet, and sends 0.
 */
#ifndef DDPI_TLS_KEY_H
#define DDPI_TLS_KEY_H

#include "proof.h"
#include "tls.h"

/* The key of a client; wipe *@ret. DDP_E_DENIED: the credential is that of another identity. */
ddp_status ddpi_tls_key_make(const struct ddpi_credential *credential,
                             const struct ddpi_identity *identity, struct ddpi_tls_key *ret,
                             struct ddp_error *err);

/* The secret for the key name that a client has sent to the server of the store @store. False: the
 * name is not valid here. */
bool ddpi_tls_key_find(const struct ddpi_credential *token, uint64_t store, const uint8_t *name,
                       size_t len, uint8_t ret_secret[DDPI_TLS_KEY_SIZE]);

#endif
