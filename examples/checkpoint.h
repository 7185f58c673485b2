/*
 * checkpoint.h - the checkpoints of a training job: two files, "newest" and "previous", in a folder
 * that all nodes share.
 *
 * A file gets its name only after its whole content is on the disk, so a process that is killed at
 * any time leaves a valid checkpoint. The checksum detects disk errors.
 */
#ifndef EXAMPLES_CHECKPOINT_H
#define EXAMPLES_CHECKPOINT_H

#include "mlp.h"

/* The options that identify a run: runs with equal options take the same steps. */
struct checkpoint_run {
    uint64_t seed, images, batch, epochs;
    double rate, momentum;
};

struct checkpoint {
    struct checkpoint_run run;
    int64_t step; /* steps taken */
    struct mlp *model, *velocity;
};

/* Write @checkpoint to @dir as the newest one. Returns false with the reason in @why. */
bool checkpoint_write(const char *dir, const struct checkpoint *checkpoint, char *why,
                      size_t why_size);

enum checkpoint_found {
    CHECKPOINT_GOOD,
    CHECKPOINT_NONE,    /* there is no such file */
    CHECKPOINT_BAD,     /* it cannot be read, or its content is damaged */
    CHECKPOINT_FOREIGN, /* it is good, but belongs to another run */
};

/* Read the file @name in @dir. If it is good and belongs to @checkpoint->run, fill the rest of
 * *@checkpoint. The memory of model and velocity is overwritten even on failure. */
enum checkpoint_found checkpoint_read(const char *dir, const char *name,
                                      struct checkpoint *checkpoint, char *why, size_t why_size);

#endif
