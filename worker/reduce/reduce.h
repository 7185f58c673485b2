/*
 * reduce.h - arithmetic on elements: the interface between algorithms and the device that computes.
 *
 * Pointers may have any alignment. The numeric rules are those of ddprun/comm.h.
 */
#ifndef DDPI_REDUCE_H
#define DDPI_REDUCE_H

#include <ddprun/comm.h>

enum { DDPI_REDUCE_MOST = 16 }; /* inputs, and outputs, of one reduction */

/*
 * out[0][i] = out[1][i] = ... = round((in[0][i] op in[1][i] op ...) / divisor), in this order.
 *
 * The 16-bit types are folded and divided in float32 and rounded once, to nearest even; with one
 * input and no divisor they are copied as they are. Integers wrap around and are divided toward
 * zero. An output may be one of the inputs; otherwise nothing overlaps.
 */
struct ddpi_reduction {
    const void *in[DDPI_REDUCE_MOST];
    void *out[DDPI_REDUCE_MOST];
    uint32_t nin; /* at least 1 */
    uint32_t nout;
    size_t count; /* elements of each */
    ddp_dtype dtype;
    ddp_reduce_op op; /* DDP_AVERAGE folds like DDP_SUM */
    uint32_t divisor; /* of a sum; 1: none, as for every other reduction */
};

void ddpi_reduce_many(const struct ddpi_reduction *work);

/* One value at a time, for tests and for programs that fill buffers. */
float ddpi_float_from_half(uint16_t half);
uint16_t ddpi_half_from_float(float value);
float ddpi_float_from_bfloat(uint16_t bfloat);
uint16_t ddpi_bfloat_from_float(float value);

#endif
