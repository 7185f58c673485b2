/*
 * loops.h - the loops over elements, as a table: one table for each instruction set.
 *
 * All tables give the same bits, except inside a NaN. Pointers may have any alignment; an output
 * may be one of the inputs, otherwise nothing overlaps.
 */
#ifndef DDPI_LOOPS_H
#define DDPI_LOOPS_H

#include "reduce.h"

/* dst[i] = a[i] op b[i], rounded. */
typedef void ddpi_pair_loop(void *dst, const void *a, const void *b, size_t count);

/* dst[i] = src[i] / divisor; dst[i] = src[i] * factor; both rounded. */
typedef void ddpi_divide_loop(void *dst, const void *src, size_t count, uint32_t divisor);
typedef void ddpi_scale_loop(void *dst, const void *src, size_t count, double factor);

/* wide[i] = in[i]; or wide[i] = wide[i] op in[i]. */
typedef void ddpi_wide_loop(float *wide, const void *in, size_t count);

/* Whether one of @count elements is inf or NaN; and the loops above which tell whether one of what
 * they have written is, from registers. */
typedef bool ddpi_check_loop(const void *elements, size_t count);
typedef bool ddpi_checked_pair_loop(void *dst, const void *a, const void *b, size_t count);
typedef bool ddpi_checked_divide_loop(void *dst, const void *src, size_t count, uint32_t divisor);

/* How a float of 8 or 16 bits is folded in float32. */
struct ddpi_wide_loops {
    ddpi_wide_loop *widen, *add, *multiply;
    void (*narrow)(void *out, const float *wide, size_t count);
    ddpi_divide_loop *divide; /* from float32 */
};

/* NULL where ddpi_reduce_check() refuses; @wide is empty for the other types. */
struct ddpi_loops {
    const char *name;
    ddpi_pair_loop *pair[DDPI_REDUCE_OPS][DDPI_DTYPES];
    ddpi_divide_loop *divide[DDPI_DTYPES];
    ddpi_scale_loop *scale[DDPI_DTYPES];
    ddpi_check_loop *non_finite[DDPI_DTYPES]; /* of floats and complex numbers */
    /* Of those that are not narrow; for the others there is @non_finite. */
    ddpi_checked_pair_loop *checked_pair[DDPI_REDUCE_OPS][DDPI_DTYPES];
    ddpi_checked_divide_loop *checked_divide[DDPI_DTYPES];
    struct ddpi_wide_loops wide[DDPI_DTYPES];
};

extern const struct ddpi_loops ddpi_loops_plain, ddpi_loops_avx2, ddpi_loops_avx512,
    ddpi_loops_neon;

/* The tables that this processor can run, from the plain one to the fastest: number @index, NULL if
 * there are no more. And the fastest. */
const struct ddpi_loops *ddpi_loops_variant(size_t index);
const struct ddpi_loops *ddpi_loops_best(void);

/* ddpi_reduce_many() by these loops. */
void ddpi_reduce_with(const struct ddpi_loops *loops, const struct ddpi_reduction *work);

#endif
