/*
 * worker_keys.c - reads the token at its first use, and derives keys from it. Owns the copy of the
 * token.
 *
 * A key is passed as a descriptor, as the environment can be read by other programs of the user and
 * is inherited by children.
 */
#include "worker_keys.h"

#include "error.h"
#include "memory_file.h"
#include "token_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static ddp_status worker_key_seal(const char *line, int *ret_fd, struct ddp_error *err)
{
    int fd = ddpi_memory_file_keep("ddprun-key", line, strlen(line));
    if (fd >= 0) {
        *ret_fd = fd;
        return DDP_OK;
    }
    ddp_status status = ddpi_error_sys(err, errno, "cannot make a key for the workers");
    if (err->sys_errno == EFBIG)
        ddpi_error_advise(err, status, "raise the limit on file sizes with 'ulimit -f'");
    return status;
}

/* Read the token that all nodes share. DDP_E_NOT_FOUND: there is none. */
static ddp_status worker_keys_load(struct worker_keys *keys, struct ddp_error *err)
{
    if (keys->loaded)
        return DDP_OK;
    if (keys->token_file == NULL)
        return DDP_E_NOT_FOUND;
    ddp_status status = keys->makes_token ? ddpi_token_obtain(keys->token_file, &keys->token, err)
                                          : ddpi_token_read(keys->token_file, &keys->token, err);
    keys->loaded = status == DDP_OK;
    /* Without a writable home directory the job runs all the same. */
    return keys->makes_token && status != DDP_OK && status != DDP_E_DENIED ? DDP_E_NOT_FOUND
                                                                           : status;
}

static ddp_status make_from(const struct ddpi_credential *token, const struct ddpi_identity *worker,
                            int *ret_fd, struct ddp_error *err)
{
    char line[DDPI_KEY_LINE];
    ddp_status status = ddpi_token_key_line(token, worker, line, err);
    if (status == DDP_OK)
        status = worker_key_seal(line, ret_fd, err);
    ddpi_wipe(line, sizeof line);
    return status;
}

ddp_status worker_keys_make(void *ctx, uint64_t generation, struct agent_key *ret_key,
                            struct ddp_error *err)
{
    struct worker_keys *keys = ctx;
    struct ddpi_identity worker = {.role = DDPI_ROLE_WORKER, .epoch = generation};
    snprintf(worker.job, sizeof worker.job, "%s", keys->job);
    *ret_key = (struct agent_key){.for_store = keys->wanted};
    if (worker.job[0] == '\0' && !keys->wanted) {
        struct ddpi_credential fresh = {.is_token = true};
        ddpi_token_random(fresh.secret, sizeof fresh.secret);
        ddp_status status = make_from(&fresh, &worker, &ret_key->fd, err);
        ddpi_wipe(&fresh, sizeof fresh);
        if (status != DDP_OK && err->sys_errno == EFBIG) {
            fprintf(stderr,
                    "ddprun: no key for the workers, as no file may have %d bytes (ulimit -f): "
                    "ranks do not authenticate to each other; raise that limit\n",
                    DDPI_KEY_LINE);
            return DDP_OK;
        }
        return status;
    }
    ddp_status status = worker_keys_load(keys, err);
    if (status == DDP_E_NOT_FOUND || (status == DDP_OK && !keys->token.is_token))
        return DDP_OK; /* as the store accepted the agent, it may accept workers without a key */
    worker.store = keys->wanted ? keys->store : 0;
    return status == DDP_OK ? make_from(&keys->token, &worker, &ret_key->fd, err) : status;
}

void worker_keys_finish(struct worker_keys *keys)
{
    ddpi_wipe(&keys->token, sizeof keys->token);
    keys->loaded = false;
}
