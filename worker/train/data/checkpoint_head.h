/*
 * checkpoint_head.h - the head of a checkpoint file: what the rest of the file consists of. Pure.
 *
 * A file: the head, then for each blob its bytes and their checksum. The head: magic, version,
 * bytes of the whole head, bytes of the run's identification, number of blobs; the identification;
 * for each blob the length of its name, its bytes, its name; the checksum of all before.
 */
#ifndef DDPI_CHECKPOINT_HEAD_H
#define DDPI_CHECKPOINT_HEAD_H

#include <ddprun/ddp_checkpoint.h>

struct ddpi_buf;

enum { DDPI_CHECKPOINT_FIXED = 32, DDPI_CHECKPOINT_SUM = 8 }; /* bytes */

/* What blobs are @of, for sentences, what that is @in, and how many bytes they may have. */
struct ddpi_blob_limits {
    const char *of, *in;
    uint64_t most;
};

/* What a caller has set is within the limits. */
ddp_status ddpi_blobs_check(const struct ddp_checkpoint_blob *blobs, size_t count,
                            const struct ddpi_blob_limits *limits, struct ddp_error *err);
ddp_status ddpi_checkpoint_check(const struct ddp_checkpoint *checkpoint, struct ddp_error *err);

/* Append the head to @buf, which is empty and without a limit. */
ddp_status ddpi_checkpoint_encode(const struct ddp_checkpoint *checkpoint, struct ddpi_buf *buf,
                                  struct ddp_error *err);

/* Bytes of the head that begins with the DDPI_CHECKPOINT_FIXED bytes at @fixed, in a file of @file
 * bytes. 0: it is damaged, for the reason in @err. */
uint64_t ddpi_checkpoint_head_bytes(const uint8_t *fixed, uint64_t file, struct ddp_error *err);

/* Compare the head of @len bytes with what @checkpoint expects. DDP_E_PROTOCOL: it is damaged.
 * DDP_E_MISMATCH: it is of another run, or has other blobs. */
ddp_status ddpi_checkpoint_compare(const struct ddp_checkpoint *checkpoint, const uint8_t *head,
                                   size_t len, struct ddp_error *err);

/* Bytes of the whole file, whose head has @head bytes. */
uint64_t ddpi_checkpoint_file_bytes(const struct ddp_checkpoint *checkpoint, uint64_t head);

#endif
