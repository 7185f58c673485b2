/*
 * client_auth.h - what a handle proves about itself, and when: what the clients make of the fields
 * auth, token_file, token_fd, role, job and epoch of struct ddp_store_options. Owns the secret.
 */
#ifndef DDPI_CLIENT_AUTH_H
#define DDPI_CLIENT_AUTH_H

#include "address.h"
#include "client_greet.h"

#include <ddprun/store.h>

struct ddpi_client_auth {
    bool optional_on_loopback; /* a server there is talked to without a token, if there is none */
    char *later;               /* the token file that has not been read yet; or NULL */
    struct ddpi_credential *credential; /* kept out of core dumps; NULL: it proves nothing */
    struct ddpi_identity identity;
    char vouches_for[DDPI_JOB_MAX + 1]; /* as in struct ddpi_hello */
    bool wants_tls;
    struct ddpi_tls_engine *tls; /* loaded when it is needed; else NULL */
};

/* Zeroed, it proves nothing. All fields of @options are known; reads the token, where it will be
 * needed. On failure there is nothing to finish. */
ddp_status ddpi_client_auth_init(struct ddpi_client_auth *auth,
                                 const struct ddp_store_options *options, struct ddp_error *err);
void ddpi_client_auth_finish(struct ddpi_client_auth *auth);

/* What to say to the server at @peer; the terms point into @auth. */
ddp_status ddpi_client_auth_terms(struct ddpi_client_auth *auth, const struct ddpi_address *peer,
                                  struct ddpi_greet_terms *ret_terms, struct ddp_error *err);

#endif
