/*
 * ddprun/ddp_checkpoint.h - checkpoints that survive a crash at any time. Part of <ddprun/ddp.h>.
 *
 * A checkpoint is a list of named blobs: the weights, the state of the optimizer, the step. The two
 * last ones are kept in a folder, as the files "newest" and "previous". A file gets its name only
 * after its content is on the disk, and at each moment one of the two names is that of a whole
 * file. Checksums find damage; then the previous one is read. Blobs are in the byte order of the
 * machine. Checksums are no protection against forgery: whoever may write to the folder decides
 * what is read.
 *
 * One process writes to a folder at a time: rank 0, usually, which also reads and broadcasts. These
 * calls block until the disk is done. Different threads may use different folders.
 */
#ifndef DDPRUN_DDP_CHECKPOINT_H
#define DDPRUN_DDP_CHECKPOINT_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most blobs of a checkpoint, bytes of a blob's name, and bytes of the identification of a run. */
enum {
    DDP_CHECKPOINT_BLOBS = 65536,
    DDP_CHECKPOINT_NAME = 255,
    DDP_CHECKPOINT_RUN = 65536,
};

struct ddp_checkpoint_blob {
    const char *name; /* for error sentences, and to tell blobs apart; 1 to 255 bytes */
    void *data;       /* host memory; written to by ddp_checkpoint_read() only */
    size_t bytes;
};

/*
 * What to write or to read, and where. Set @size to sizeof(struct ddp_checkpoint). All memory stays
 * the caller's. Two runs with equal bytes at @run may read each other's checkpoints: put there what
 * decides the course of a training, such as the seed and the learning rate.
 */
struct ddp_checkpoint {
    size_t size;
    const char *folder; /* must exist */
    const void *run;    /* may be NULL with 0 run_bytes */
    size_t run_bytes;
    const struct ddp_checkpoint_blob *blobs;
    size_t count; /* of blobs; at least 1 */
};

typedef enum ddp_checkpoint_found {
    DDP_CHECKPOINT_NONE,     /* there is no checkpoint in the folder */
    DDP_CHECKPOINT_NEWEST,   /* the blobs are those of the newest one */
    DDP_CHECKPOINT_PREVIOUS, /* those of the one before: the newest is damaged or missing */
    DDP_CHECKPOINT_DAMAGED   /* there are files, but none is whole */
} ddp_checkpoint_found;

/**
 * Write the blobs as the newest checkpoint; what was the newest becomes the previous one. Needs no
 * memory for a copy of them: they must not change meanwhile.
 *
 * On failure the checkpoints of the folder are as before, or the new one is in place, but perhaps
 * not yet safe from a loss of power. DDP_E_INVALID: the sentence names the member. DDP_E_SYSTEM:
 * names the file and what the system refused, such as space. DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_checkpoint_write(const struct ddp_checkpoint *checkpoint,
                                                       struct ddp_error *err);

/**
 * Read the newest whole checkpoint into the blobs: their names, order and sizes must be those with
 * which it was written. *@ret_found tells which one it was.
 *
 * If a file was passed over, @ret_skipped (which may be NULL) tells which one and why; else its
 * status is DDP_OK and its text is empty. Unless the result is NEWEST or PREVIOUS, the content of
 * the blobs is undefined. With DAMAGED the caller decides whether to begin anew: the next writes
 * replace both files.
 *
 * DDP_E_MISMATCH: a whole checkpoint is of another run, or has other blobs; the sentence names it.
 * It is not passed over, as the training would replace it. DDP_E_INVALID, DDP_E_SYSTEM, DDP_E_NOMEM
 * as ddp_checkpoint_write(). *@ret_found is set on DDP_OK only.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_checkpoint_read(const struct ddp_checkpoint *checkpoint,
                                                      ddp_checkpoint_found *ret_found,
                                                      struct ddp_error *ret_skipped,
                                                      struct ddp_error *err);

#ifdef __cplusplus
}
#endif

#endif
