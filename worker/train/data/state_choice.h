/*
 * state_choice.h - what ranks tell each other about their states, and what follows from it: which
 * commit is the newest, who has it, and what differs between lists of blobs. Pure.
 */
#ifndef DDPI_STATE_CHOICE_H
#define DDPI_STATE_CHOICE_H

#include <ddprun/ddp_checkpoint.h>
#include <stdbool.h>

/* What a rank tells of itself; all numbers are 64 bits wide, as they are gathered. */
struct ddpi_state_record {
    uint64_t digest; /* of names and sizes of the blobs */
    uint64_t blobs;
    uint64_t term;   /* of its last commit: how many syncs there were before it */
    uint64_t number; /* of that commit; 0: none */
    uint64_t sum;    /* of its bytes: ranks that went on apart may have counted to the same */
};
enum { DDPI_STATE_RECORD_NUMBERS = 5 };

struct ddpi_state_choice {
    uint32_t odd;    /* the first rank whose blobs are not rank 0's; 0: there is none */
    uint32_t root;   /* the lowest rank that has the newest commit */
    bool missing;    /* a rank lacks it */
    uint64_t term;   /* of the newest commit */
    uint64_t number; /* 0: no rank has a commit, and rank 0 is to make the first */
};

/* Name and size of a blob, as ranks with different blobs show them to each other. */
struct ddpi_blob_shape {
    uint64_t bytes;
    char name[DDP_CHECKPOINT_NAME + 1];
};

uint64_t ddpi_state_digest(const struct ddp_checkpoint_blob *blobs, size_t count);

struct ddpi_state_choice ddpi_state_choose(const struct ddpi_state_record *records, uint32_t count);

/* Blob @i of rank 0 and that of rank @odd. DDP_E_MISMATCH if they differ. */
ddp_status ddpi_blob_compare(uint64_t i, const struct ddpi_blob_shape *first,
                             const struct ddpi_blob_shape *other, uint32_t odd,
                             struct ddp_error *err);

/* Rank @has has blob @i, and rank @lacks has no further one. Returns DDP_E_MISMATCH. */
ddp_status ddpi_blob_missing(uint64_t i, const struct ddpi_blob_shape *blob, uint32_t has,
                             uint32_t lacks, struct ddp_error *err);

#endif
