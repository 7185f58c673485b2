/*
 * client_auth.h - the identity of a handle and its proof, from the fields auth, token_file,
 * token_fd, role, job and epoch of struct ddp_store_options.
 */
#ifndef DDPI_CLIENT_AUTH_H
#define DDPI_CLIENT_AUTH_H

#include "address.h"
#include "client_greet.h"

#include <ddprun/store.h>

struct ddpi_client_auth {
    bool optional_on_loopback;          /* without a token file, use a server there without proof */
    char *later;                        /* the token file, while it has not been read; or NULL */
    struct ddpi_credential *credential; /* kept out of core dumps; NULL: no proof */
    struct ddpi_identity identity;
    char vouches_for[DDPI_JOB_MAX + 1]; /* as in struct ddpi_hello */
    bool wants_tls;
    struct ddpi_tls_engine *tls; /* loaded when it is first needed */
};

/* Reads the token if it is certain to be needed. A zeroed @auth proves nothing. On failure there is
 * nothing to finish. */
ddp_status ddpi_client_auth_init(struct ddpi_client_auth *auth,
                                 const struct ddp_store_options *options, struct ddp_error *err);
void ddpi_client_auth_finish(struct ddpi_client_auth *auth);

/* The terms for the server at @peer; they point into @auth. */
ddp_status ddpi_client_auth_terms(struct ddpi_client_auth *auth, const struct ddpi_address *peer,
                                  struct ddpi_greet_terms *ret_terms, struct ddp_error *err);

#endif
