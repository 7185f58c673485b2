/*
 * client_auth.c - builds an identity and its credential from the options. Owns the secret.
 */
#include "client_auth.h"

#include "error.h"
#include "mem.h"
#include "token_file.h"

#include <assert.h>
#include <stdio.h>

static_assert((int)DDP_STORE_AGENT == DDPI_ROLE_AGENT, "the numbers are those on the wire");
static_assert((int)DDP_STORE_WORKER == DDPI_ROLE_WORKER, "the numbers are those on the wire");
static_assert((int)DDP_STORE_OBSERVER == DDPI_ROLE_OBSERVER, "the numbers are those on the wire");

static ddp_status take_identity(const struct ddp_store_options *options, struct ddpi_identity *ret,
                                struct ddp_error *err)
{
    const char *job = options->job != NULL ? options->job : "";
    if (ddpi_role_name((unsigned)options->role) == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "there is no role %d", (int)options->role);
    if (*job != '\0' && !ddpi_job_valid(job, strlen(job)))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not a valid job name: use 1 to %d letters, digits, '.', '_' "
                              "and '-', without a leading '.', and not '-' alone",
                              job, DDPI_JOB_MAX);
    *ret = (struct ddpi_identity){.role = (enum ddpi_role)options->role, .epoch = options->epoch};
    snprintf(ret->job, sizeof ret->job, "%s", job);
    return DDP_OK;
}

/* If the options name no role, job and epoch, take those of a role key. */
static ddp_status take_credential(struct ddpi_client_auth *auth,
                                  const struct ddpi_credential *credential, struct ddp_error *err)
{
    struct ddpi_identity *own = &auth->identity;
    bool unset = own->role == DDPI_ROLE_AGENT && own->job[0] == '\0' && own->epoch == 0;
    auth->credential = ddpi_token_keep(credential);
    if (auth->credential == NULL)
        return ddpi_error_nomem(err, sizeof *credential);
    if (!credential->is_token && unset)
        *own = credential->identity;
    return DDP_OK;
}

/* From @path, or from @fd if @path is NULL. If @optional, the file need not exist. */
static ddp_status load_credential(struct ddpi_client_auth *auth, const char *path, int fd,
                                  bool optional, struct ddp_error *err)
{
    struct ddpi_credential credential;
    ddp_status status = path != NULL ? ddpi_token_read(path, &credential, err)
                                     : ddpi_token_read_fd(fd, &credential, err);
    if (status == DDP_OK)
        status = take_credential(auth, &credential, err);
    ddpi_wipe(&credential, sizeof credential);
    if (status != DDP_E_NOT_FOUND)
        return status;
    if (optional)
        return DDP_OK;
    if (err != NULL) /* for callers, DDP_E_NOT_FOUND means a missing key of the store */
        err->status = DDP_E_DENIED;
    return DDP_E_DENIED;
}

ddp_status ddpi_client_auth_init(struct ddpi_client_auth *auth,
                                 const struct ddp_store_options *options, struct ddp_error *err)
{
    bool given = options->token_file != NULL || options->token_fd > 0;
    *auth = (struct ddpi_client_auth){.wants_tls = options->flags & DDP_STORE_TLS};
    ddp_status status = take_identity(options, &auth->identity, err);
    if (status != DDP_OK)
        return status;
    if (options->auth == DDP_STORE_AUTH_NONE || (options->auth == DDP_STORE_AUTH_DEFAULT && !given))
        return DDP_OK;
    if (options->auth > DDP_STORE_AUTH_BEYOND_LOOPBACK || !given)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "auth is %d, but neither token_file nor token_fd is given",
                              (int)options->auth);
    auth->optional_on_loopback = options->auth == DDP_STORE_AUTH_BEYOND_LOOPBACK;
    if (!auth->optional_on_loopback || options->token_fd > 0)
        return load_credential(auth, options->token_fd > 0 ? NULL : options->token_file,
                               options->token_fd, false, err);
    auth->later = ddpi_strdup(options->token_file);
    return auth->later != NULL ? DDP_OK : ddpi_error_nomem(err, 1);
}

void ddpi_client_auth_finish(struct ddpi_client_auth *auth)
{
    ddpi_free(auth->later);
    ddpi_tls_engine_destroy(auth->tls);
    ddpi_token_drop(auth->credential);
    *auth = (struct ddpi_client_auth){0};
}

/* Loopback traffic cannot be overheard. It is still encrypted if the token is required there, as a
 * local port may be forwarded to another machine. */
static ddp_status prepare_tls(struct ddpi_client_auth *auth, bool loopback,
                              const struct ddpi_tls_engine **ret, struct ddp_error *err)
{
    *ret = NULL;
    if (!auth->wants_tls || (loopback && (auth->optional_on_loopback || auth->credential == NULL)))
        return DDP_OK;
    if (auth->credential == NULL)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "TLS needs the server's token, or a key made from it, but neither is "
                              "given; set --token-file=FILE or DDPRUN_TOKEN_FILE");
    ddp_status status = auth->tls == NULL ? ddpi_tls_engine_create(&auth->tls, err) : DDP_OK;
    *ret = auth->tls;
    return status;
}

ddp_status ddpi_client_auth_terms(struct ddpi_client_auth *auth, const struct ddpi_address *peer,
                                  struct ddpi_greet_terms *ret_terms, struct ddp_error *err)
{
    bool optional = auth->optional_on_loopback && ddpi_address_is_loopback(peer);
    ddp_status status =
        auth->later != NULL ? load_credential(auth, auth->later, -1, optional, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    if (auth->credential != NULL) {
        ddpi_free(auth->later);
        auth->later = NULL;
    }
    *ret_terms = (struct ddpi_greet_terms){
        .identity = &auth->identity,
        .credential = auth->credential,
        .vouches_for = auth->vouches_for,
        .random = ddpi_token_random,
    };
    return prepare_tls(auth, ddpi_address_is_loopback(peer), &ret_terms->tls, err);
}
