/*
 * checkpoint.h - the checkpoints of a training job: two files, "newest" and "previous", in a folder
 * that all nodes share.
 *
 * A file gets its name only when its whole content is on the disk. So a process that is killed at
 * any moment leaves a valid checkpoint. The checksum detects errors of the disk.
 */
#ifndef EXAMPLES_CHECKPOINT_H
#define EXAMPLES_CHECKPOINT_H

#include "mlp.h"

/* What makes two runs the same one: with the same numbers they take the same steps. */
struct checkpoint_run {
    uint64_t seed, images, batch, epochs;
    double rate, momentum;
};

struct checkpoint {
    struct checkpoint_run run;
    int64_t step; /* steps taken */
    struct mlp *model, *velocity;
};

/* Write @checkpoint to @dir as the newest one. False: an explanation is in @why. */
bool checkpoint_write(const char *dir, const struct checkpoint *checkpoint, char *why,
                      size_t why_size);

enum checkpoint_found {
    CHECKPOINT_GOOD,
    CHECKPOINT_NONE,    /* there is no such file */
    CHECKPOINT_BAD,     /* it cannot be read, or not all of it is what was written */
    CHECKPOINT_FOREIGN, /* it is good, but of another run */
};

/* Read the file @name of @dir. If it is good and of @checkpoint->run, the rest of *@checkpoint is
 * filled; what model and velocity point to is overwritten in any case. */
enum checkpoint_found checkpoint_read(const char *dir, const char *name,
                                      struct checkpoint *checkpoint, char *why, size_t why_size);

#endif
