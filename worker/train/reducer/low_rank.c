/*
 * low_rank.c - see low_rank.h. The ranks are small, so the innermost loops run along rows.
 */
#include "low_rank.h"

#include <math.h>
#include <string.h>

void ddpi_low_rank_left(float *p, const float *matrix, const float *q, size_t n, size_t m, size_t r)
{
    memset(p, 0, n * r * sizeof *p);
    for (size_t row = 0; row < n; row++)
        for (size_t i = 0; i < m; i++)
            for (size_t k = 0; k < r; k++)
                p[row * r + k] += matrix[row * m + i] * q[i * r + k];
}

void ddpi_low_rank_right(float *q, const float *matrix, const float *p, size_t n, size_t m,
                         size_t r)
{
    memset(q, 0, m * r * sizeof *q);
    for (size_t row = 0; row < n; row++)
        for (size_t i = 0; i < m; i++)
            for (size_t k = 0; k < r; k++)
                q[i * r + k] += matrix[row * m + i] * p[row * r + k];
}

void ddpi_low_rank_expand(float *matrix, const float *p, const float *q, float factor, size_t n,
                          size_t m, size_t r)
{
    for (size_t row = 0; row < n; row++)
        for (size_t i = 0; i < m; i++) {
            float sum = 0;
            for (size_t k = 0; k < r; k++)
                sum += p[row * r + k] * q[i * r + k];
            matrix[row * m + i] = sum * factor;
        }
}

static double dot(const float *columns, size_t n, size_t r, size_t a, size_t b)
{
    double sum = 0;
    for (size_t row = 0; row < n; row++)
        sum += (double)columns[row * r + a] * columns[row * r + b];
    return sum;
}

/* Take the part along earlier columns away. */
static void project_out(float *columns, size_t n, size_t r, size_t k)
{
    for (size_t j = 0; j < k; j++) {
        double along = dot(columns, n, r, j, k);
        for (size_t row = 0; row < n; row++)
            columns[row * r + k] -= (float)(along * columns[row * r + j]);
    }
}

/* What is left of a dependent column is rounding error, which must not become a direction. Twice,
 * as the first time loses orthogonality if little is left. */
void ddpi_orthonormalize(float *columns, size_t n, size_t r)
{
    for (size_t k = 0; k < r; k++) {
        double before = dot(columns, n, r, k, k);
        project_out(columns, n, r, k);
        project_out(columns, n, r, k);
        double left = dot(columns, n, r, k, k);
        double scale = left > before * 1e-10 ? 1 / sqrt(left) : 0;
        for (size_t row = 0; row < n; row++)
            columns[row * r + k] = (float)(columns[row * r + k] * scale);
    }
}

static double next_uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static float next_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(next_uniform(state)));
    return (float)(radius * cos(2 * M_PI * next_uniform(state)));
}

void ddpi_fill_normal(float *values, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        values[i] = next_normal(&seed);
}

void ddpi_complete_columns(float *columns, size_t n, size_t r, uint64_t seed)
{
    bool complete = true;
    for (size_t k = 0; k < r; k++) {
        if (dot(columns, n, r, k, k) != 0)
            continue;
        complete = false;
        for (size_t row = 0; row < n; row++)
            columns[row * r + k] = next_normal(&seed);
    }
    if (!complete)
        ddpi_orthonormalize(columns, n, r);
}

bool ddpi_is_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}
