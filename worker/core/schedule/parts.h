/*
 * parts.h - how a buffer is divided among ranks: equal parts, or a count for each rank. Pure
 * arithmetic.
 */
#ifndef DDPI_PARTS_H
#define DDPI_PARTS_H

#include "ring.h"

/* In elements. The arrays are the caller's, with an entry for each rank. */
struct ddpi_parts {
    const size_t *counts;  /* NULL: all parts are equal */
    const size_t *offsets; /* NULL: one part after the other, in the order of ranks */
};

/* The part of @rank; @count is that of each part if they are equal. */
struct ddpi_chunk ddpi_parts_at(const struct ddpi_parts *parts, size_t count, uint32_t rank);

/* The elements from the start of the buffer to the end of the last part, and the sum of all parts;
 * false: more than a size_t holds. */
bool ddpi_parts_span(const struct ddpi_parts *parts, size_t count, uint32_t nranks,
                     size_t *ret_span, size_t *ret_sum);

/* @digest as a header has it: neither 0 nor 1, which mean something else there. */
uint32_t ddpi_digest_end(uint32_t digest);

/* Tells divisions apart by their counts. 0: equal parts. */
uint32_t ddpi_parts_digest(const struct ddpi_parts *parts, uint32_t nranks);

/* Two ranks of whose parts some elements are the same; false: there are none. */
bool ddpi_parts_overlap(const struct ddpi_parts *parts, uint32_t nranks, uint32_t *ret_a,
                        uint32_t *ret_b);

#endif
