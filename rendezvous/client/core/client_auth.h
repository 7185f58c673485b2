/*
 * client_auth.h - the identity and the credential of a handle, from the fields auth, token_file,
 * token_fd, role, job and epoch of struct ddp_store_options.
 */
#ifndef DDPI_CLIENT_AUTH_H
#define DDPI_CLIENT_AUTH_H

#include "address.h"
#include "client_greet.h"

#include <ddprun/store.h>

struct ddpi_client_auth {
    bool optional_on_loopback;          /* on loopback, a missing token file means no proof */
    char *later;                        /* path of a token file that is still to be read, or NULL */
    struct ddpi_credential *credential; /* kept out of core dumps; NULL: no proof */
    struct ddpi_identity identity;
    char vouches_for[DDPI_JOB_MAX + 1]; /* as in struct ddpi_hello */
    bool wants_tls;
    struct ddpi_tls_engine *tls; /* created when first needed */
};

/* Check the options, and read the token unless it may not be needed. A zeroed @auth has no
 * credential. After a failure there is nothing to finish. */
ddp_status ddpi_client_auth_init(struct ddpi_client_auth *auth,
                                 const struct ddp_store_options *options, struct ddp_error *err);
void ddpi_client_auth_finish(struct ddpi_client_auth *auth);

/* Make the terms for the server at @peer; they point into @auth. May read the token file. */
ddp_status ddpi_client_auth_terms(struct ddpi_client_auth *auth, const struct ddpi_address *peer,
                                  struct ddpi_greet_terms *ret_terms, struct ddp_error *err);

#endif
