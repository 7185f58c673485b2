/*
 * worker_keys.h - what workers prove themselves with, to each other and to a store that asks for
 * it: a key that is good for the role of a worker, in one job and generation, and for nothing else.
 * The token from which it follows stays with the agent; where there is none to share with other
 * nodes, it is a new one each time.
 */
#ifndef CMD_WORKER_KEYS_H
#define CMD_WORKER_KEYS_H

#include "agent_config.h"
#include "proof.h"

struct worker_keys {
    const char *job;        /* "": a job of one node, which nobody else has to have a key for */
    const char *token_file; /* of several nodes; NULL: there is none */
    bool makes_token;       /* where it is not there, and nobody has asked for it by name */
    bool wanted; /* the store has proven itself to the agent, so that workers are to do the same: */
    uint64_t store; /* its number */
    struct ddpi_credential token;
    bool loaded;
};

/* A sealed memory file with the key of @generation: the caller's to close. 0: there is no token to
 * make one from, or what is in its place is itself a key of one role only; or files may not have so
 * many bytes (RLIMIT_FSIZE), which it says, and nobody else has to have that key. @ctx: struct
 * worker_keys, whose first five fields are set. Matches struct agent_keys. */
DDP_MUST_CHECK ddp_status worker_keys_make(void *ctx, uint64_t generation,
                                           struct agent_key *ret_key, struct ddp_error *err);

/* Forget the token. For one that is zeroed, too. */
void worker_keys_finish(struct worker_keys *keys);

#endif
