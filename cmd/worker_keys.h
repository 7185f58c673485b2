/*
 * worker_keys.h - what workers prove themselves with to a store that asks for it: a key that is
 * good for the role of a worker, in one job and generation, and for nothing else. The token from
 * which it follows stays with the agent.
 */
#ifndef CMD_WORKER_KEYS_H
#define CMD_WORKER_KEYS_H

#include "auth.h"

struct worker_keys {
    const char *job;
    const char *token_file;
    struct ddpi_credential token;
    bool loaded;
};

/* A sealed memory file with the key of @generation: the caller's to close. 0: there is no token to
 * make one from, or what is in its place is itself a key of one role only. @ctx: struct
 * worker_keys, whose job and token_file are set. Matches struct agent_keys. */
DDP_MUST_CHECK ddp_status worker_keys_make(void *ctx, uint64_t generation, int *ret_fd,
                                           struct ddp_error *err);

/* Forget the token. For one that is zeroed, too. */
void worker_keys_finish(struct worker_keys *keys);

#endif
