/*
 * low_rank.h - the arithmetic of PowerSGD on matrices of float32, row after row. Pure.
 *
 * M has n x m elements, P n x r, Q m x r.
 */
#ifndef DDPI_LOW_RANK_H
#define DDPI_LOW_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* P = M Q. */
void ddpi_low_rank_left(float *p, const float *matrix, const float *q, size_t n, size_t m,
                        size_t r);

/* Q = M^T P. */
void ddpi_low_rank_right(float *q, const float *matrix, const float *p, size_t n, size_t m,
                         size_t r);

/* M = factor * P Q^T. */
void ddpi_low_rank_expand(float *matrix, const float *p, const float *q, float factor, size_t n,
                          size_t m, size_t r);

/* Make the @r columns of @columns, which has @n rows, orthonormal (modified Gram-Schmidt). A column
 * that depends on those before it becomes zero. */
void ddpi_orthonormalize(float *columns, size_t n, size_t r);

/* Orthonormal @columns with some zero ones: replace those by random directions that depend on @seed
 * only, orthogonal to the others. */
void ddpi_complete_columns(float *columns, size_t n, size_t r, uint64_t seed);

bool ddpi_is_finite(const float *values, size_t count);

/* Standard normal numbers that depend on @seed only (SplitMix64, Box-Muller). */
void ddpi_fill_normal(float *values, size_t count, uint64_t seed);

#endif
