/*
 * reduce.h - arithmetic on elements: the seam between the algorithms and the device that computes.
 *
 * Any pointer may have any alignment. The numeric rules are those of ddprun/comm.h.
 */
#ifndef DDPI_REDUCE_H
#define DDPI_REDUCE_H

#include <ddprun/comm.h>

/* dst[i] = a[i] op b[i]. @dst may be @a or @b; otherwise nothing overlaps. For DDP_AVERAGE this is
 * the sum; ddpi_divide() follows once the sum is complete. */
void ddpi_reduce(void *dst, const void *a, const void *b, size_t count, ddp_dtype dtype,
                 ddp_reduce_op op);

/* values[i] /= divisor; integers truncate toward zero. */
void ddpi_divide(void *values, size_t count, ddp_dtype dtype, uint32_t divisor);

/* One value at a time, for tests and for programs that fill buffers. */
float ddpi_float_from_half(uint16_t half);
uint16_t ddpi_half_from_float(float value);
float ddpi_float_from_bfloat(uint16_t bfloat);
uint16_t ddpi_bfloat_from_float(float value);

#endif
