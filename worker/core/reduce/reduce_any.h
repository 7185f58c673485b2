/*
 * reduce_any.h - the reduction of `direct`: any number of contributions, in order, with one
 * rounding.
 */
#ifndef DDPI_REDUCE_ANY_H
#define DDPI_REDUCE_ANY_H

#include <ddprun/comm.h>
#include <stdbool.h>

/* The contributions lie in a row, @stride bytes apart. */
struct ddpi_fold {
    const uint8_t *in;
    size_t stride;
    uint32_t nin; /* at least 1 */
    void *out;    /* does not overlap them */
    size_t count; /* elements of each */
    ddp_dtype dtype;
    ddp_reduce_op op;
    uint32_t divisor; /* 1 = none */
    bool *non_finite; /* set to true if an element of the result is inf or NaN; NULL: not wanted */
};

void ddpi_fold(const struct ddpi_fold *fold);

#endif
