/*
 * elements.h - made-up buffers of every element type, and a slow and plain reference of what
 * ddpi_reduce_many() and the kernels must make of them.
 */
#ifndef TESTS_ELEMENTS_H
#define TESTS_ELEMENTS_H

#include "reduce.h"

#include <stdbool.h>

/* The next word of a stream that looks random and depends on the seed in @state alone. */
uint64_t elements_scramble(uint64_t *state);

/* Fill @buffer with any bits at all, and more often than chance would have it with zeros of either
 * sign, infinities, NaN and subnormal numbers. */
void elements_fill(void *buffer, size_t count, ddp_dtype dtype, uint64_t *state);

/* Element @i of @buffer in the lower bits. */
uint64_t elements_get(const void *buffer, size_t i, ddp_dtype dtype);

/* The element that @value becomes; @dtype is a float type. */
uint64_t elements_of_double(ddp_dtype dtype, double value);

/* What @work must make of @in, an element of each of its inputs. */
uint64_t elements_folded(const struct ddpi_reduction *work, const uint64_t *in);

/* The same bits, or NaN both: what is in a NaN differs between processors. */
bool elements_agree(ddp_dtype dtype, uint64_t a, uint64_t b);

/* Index of the first element that differs; @count if none does. */
size_t elements_differ(ddp_dtype dtype, const void *a, const void *b, size_t count);

#endif
