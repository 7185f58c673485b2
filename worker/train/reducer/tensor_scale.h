/*
 * tensor_scale.h - multiplies the elements of a tensor as Horovod does. Pure.
 */
#ifndef DDPI_TENSOR_SCALE_H
#define DDPI_TENSOR_SCALE_H

#include <ddprun/comm.h>
#include <stdbool.h>

/* Whether elements of @dtype can be multiplied by a factor: not those of bool and byte. */
bool ddpi_tensor_can_scale(ddp_dtype dtype);

/* dst[i] = src[i] * factor. Floats and complex numbers are multiplied in their own type, those of 8
 * and 16 bits in float32; integers in float64, and what that gives is truncated toward zero, or is
 * the nearest number of the type if it is outside of it (NaN: 0). @dst may be @src. */
void ddpi_tensor_scale(void *dst, const void *src, size_t count, ddp_dtype dtype, double factor);

#endif
