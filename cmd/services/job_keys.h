/*
 * job_keys.h - reads the keys by which a job is described in its store (job_view.h), on the loop of
 * a client. If the store was away meanwhile, it reads them again.
 */
#ifndef CMD_JOB_KEYS_H
#define CMD_JOB_KEYS_H

#include "proof.h"

#include <ddprun/store_uv.h>
#include <stdbool.h>

struct job_keys_hooks {
    void *ctx;
    /* Forget what was read: a reading begins, or begins again. */
    void (*begun)(void *ctx);
    /* May begin another reading. */
    void (*value)(void *ctx, const char *key, uint64_t version, const void *value, size_t len);
    /* That was all; unless @status of the keys is DDP_OK, something has not been read. May be
     * called by job_keys_read(). */
    void (*over)(void *ctx);
};

struct job_keys {
    ddp_store_uv *store; /* borrowed; NULL: nothing is read, and answers are dropped */
    struct job_keys_hooks hooks;
    char prefix[sizeof "round//" + DDPI_JOB_MAX];
    bool state_only;  /* of the reading */
    uint64_t reading; /* its number; 0: none is under way */
    uint64_t readings;
    size_t asked;      /* values that have not come yet */
    ddp_status status; /* of the reading so far */
};

/* @store may be set later. */
void job_keys_init(struct job_keys *keys, const char *job, const struct job_keys_hooks *hooks);

/* Read all keys of the job, or the one of its state; a reading that is under way is given up.
 * @keys must live until the store has been closed. */
void job_keys_read(struct job_keys *keys, bool state_only);

/* Give up the reading: no hook is called any more. */
void job_keys_stop(struct job_keys *keys);

#endif
