/*
 * sweep.h - every element type with every reduction that it has, for tests of one way to move data.
 * The reference that goes with it is elements.h.
 *
 * With DDPRUN_TEST_WHOLE=1 in the environment a sweep is whole; `make check` does so once.
 * Otherwise it is a sample in which every two values meet: each type in each world, each type with
 * each reduction, each reduction in each world (with DDP_PREMUL_SUM all but one). A test has at
 * least as many worlds as a type has reductions, and numbers them one after the other.
 */
#ifndef TESTS_SWEEP_H
#define TESTS_SWEEP_H

#include "sample.h"

#include <ddprun/comm.h>

/* One that is zero but for the first two is before the first pair. */
struct sweep {
    unsigned world; /* its number */
    bool premul;    /* with DDP_PREMUL_SUM, which needs a factor */

    ddp_dtype dtype;
    ddp_reduce_op op;
    unsigned turn; /* a number for each pair, for what else varies */
    unsigned next; /* of sweep.c */
};

/* Go to the next pair; false if there is none. */
bool sweep_next(struct sweep *sweep);

#endif
