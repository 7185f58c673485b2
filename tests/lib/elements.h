/*
 * elements.h - made-up buffers of every element type, and a slow and plain reference of what
 * ddpi_reduce_many() and the kernels must make of them.
 */
#ifndef TESTS_ELEMENTS_H
#define TESTS_ELEMENTS_H

#include "reduce.h"

#include <stdbool.h>

/* The bits of an element; the largest have 16 bytes. */
__extension__ typedef unsigned __int128 element_bits;

/* The next word of a stream that looks random and depends on the seed in @state alone. */
uint64_t elements_scramble(uint64_t *state);

/* Fill @buffer with any bits at all, and more often than chance would have it with zeros of either
 * sign, infinities, NaN and subnormal numbers. */
void elements_fill(void *buffer, size_t count, ddp_dtype dtype, uint64_t *state);

/* Element @i of @buffer in the lower bits. */
element_bits elements_get(const void *buffer, size_t i, ddp_dtype dtype);

/* The element that @value becomes. Complex numbers get an imaginary part of 0. */
element_bits elements_of_double(ddp_dtype dtype, double value);

/* What @work must make of @in, an element of each of its inputs. */
element_bits elements_folded(const struct ddpi_reduction *work, const element_bits *in);

/* What ddpi_scale() must make of it. */
element_bits elements_scaled(ddp_dtype dtype, element_bits bits, double factor);

/* Whether the type has this reduction. */
bool elements_reduce(ddp_dtype dtype, ddp_reduce_op op);

bool elements_are_floats(ddp_dtype dtype);
bool elements_is_nan(ddp_dtype dtype, element_bits bits);

/* Neither inf nor NaN, in no part of a complex number; true for all that is no float. */
bool elements_is_finite(ddp_dtype dtype, element_bits bits);
bool elements_are_finite(const void *buffer, size_t count, ddp_dtype dtype);

/* The same bits, or NaN both: what is in a NaN differs between processors. */
bool elements_agree(ddp_dtype dtype, element_bits a, element_bits b);

/* Index of the first element that differs; @count if none does. */
size_t elements_differ(ddp_dtype dtype, const void *a, const void *b, size_t count);

#endif
