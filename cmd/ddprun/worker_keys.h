/*
 * worker_keys.h - the keys with which workers authenticate to each other, and to a store that
 * demands it. A key is valid only for the role of a worker, in one job and one generation. The
 * token from which it is derived stays with the agent. Without a token that other nodes share, each
 * key comes from a new random token.
 */
#ifndef CMD_WORKER_KEYS_H
#define CMD_WORKER_KEYS_H

#include "agent_config.h"
#include "proof.h"

struct worker_keys {
    const char *job;        /* "": a job of one node, whose keys no other node needs */
    const char *token_file; /* shared with other nodes; NULL: none */
    bool makes_token;       /* create it if it is missing: the user did not name it */
    bool wanted;            /* the workers authenticate to the store, as the agent did */
    uint64_t store;         /* the store's number */
    struct ddpi_credential token;
    bool loaded;
};

/* Put the key of @generation into a sealed memory file, which the caller closes. fd 0: there is no
 * token, or only the key of one role; or RLIMIT_FSIZE is too low, and no other node needs the key,
 * so only a warning is printed. @ctx: struct worker_keys, whose first five fields are set. Matches
 * struct agent_keys. */
DDP_MUST_CHECK ddp_status worker_keys_make(void *ctx, uint64_t generation,
                                           struct agent_key *ret_key, struct ddp_error *err);

/* Wipe the token. Works on zeroed keys, too. */
void worker_keys_finish(struct worker_keys *keys);

#endif
