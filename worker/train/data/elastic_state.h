/*
 * elastic_state.h - a state and its two copies, for the files of this folder.
 *
 * Owns the copies and the names. Of the two copies one is the last commit; the other is written to
 * by a commit or a sync, and becomes the last commit when it is complete. So there is a whole one
 * at each moment.
 */
#ifndef DDPI_ELASTIC_STATE_H
#define DDPI_ELASTIC_STATE_H

#include <ddprun/ddp_state.h>

struct ddp_state {
    struct ddp_checkpoint_blob *blobs; /* with names that lie in @names */
    size_t count;
    char *names;
    size_t bytes; /* of all blobs */
    int (*copy)(void *to, const void *from, size_t bytes, void *arg);
    void *copy_arg;
    uint64_t digest;
    uint64_t term, number; /* of the last commit; number 0: there is none */
    uint8_t *committed;
    uint8_t *spare;
};

/* Copy all blobs to the spare copy. */
ddp_status ddpi_state_copy_blobs(struct ddp_state *state, struct ddp_error *err);

/* The spare copy is complete: it is commit @number of @term from now on. */
void ddpi_state_take_spare(struct ddp_state *state, uint64_t term, uint64_t number);

#endif
