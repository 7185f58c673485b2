/*
 * checkpoint.h - what a training job must not lose, in two files of a folder that all nodes share:
 * "newest", and "previous", the one before.
 *
 * A file appears under its name only when all of it is on the disk, so whoever is killed at
 * whatever moment leaves a good one behind; the checksum tells when the disk itself has lied.
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
