/*
 * test_low_rank.c - the arithmetic of PowerSGD: matrices of low rank come back as they were.
 */
#include "check_main.h"
#include "low_rank.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N = 13, M = 29, RANK_MOST = 4 };

/* A matrix of rank @rank. */
static void make_matrix(float *matrix, size_t rank, uint64_t seed)
{
    float left[N * RANK_MOST], right[M * RANK_MOST];
    ddpi_fill_normal(left, N * rank, seed);
    ddpi_fill_normal(right, M * rank, seed + 1);
    ddpi_low_rank_expand(matrix, left, right, 1, N, M, rank);
}

static void compress(float *result, const float *matrix, size_t r)
{
    float p[N * RANK_MOST], q[M * RANK_MOST];
    ddpi_fill_normal(q, M * r, 99);
    ddpi_orthonormalize(q, M, r);
    ddpi_low_rank_left(p, matrix, q, N, M, r);
    ddpi_orthonormalize(p, N, r);
    ddpi_low_rank_right(q, matrix, p, N, M, r);
    ddpi_low_rank_expand(result, p, q, 1, N, M, r);
}

static double distance(const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < N * M; i++)
        sum += pow((double)a[i] - b[i], 2);
    return sqrt(sum);
}

START_TEST(a_matrix_of_that_rank_is_exact)
{
    float matrix[N * M], zeros[N * M] = {0}, result[N * M];
    size_t rank = (size_t)_i;
    make_matrix(matrix, rank, 5);
    for (size_t r = 1; r <= RANK_MOST; r++) {
        compress(result, matrix, r);
        if (r >= rank)
            ck_assert_double_lt(distance(result, matrix), 1e-4 * distance(matrix, zeros));
        else /* a projection is never farther away than zero is */
            ck_assert_double_lt(distance(result, matrix), distance(matrix, zeros));
    }
}
END_TEST

START_TEST(columns_become_orthonormal)
{
    float columns[N * RANK_MOST];
    ddpi_fill_normal(columns, N * RANK_MOST, 3);
    ddpi_orthonormalize(columns, N, RANK_MOST);
    for (size_t a = 0; a < RANK_MOST; a++)
        for (size_t b = 0; b <= a; b++) {
            double sum = 0;
            for (size_t row = 0; row < N; row++)
                sum += (double)columns[row * RANK_MOST + a] * columns[row * RANK_MOST + b];
            ck_assert_double_eq_tol(sum, a == b ? 1 : 0, 1e-6);
        }
}
END_TEST

/* Columns that say nothing new, and zeros, do not become NaN or noise. */
START_TEST(dependent_columns_become_zero)
{
    float columns[N * 3], zeros[N * 2] = {0};
    ddpi_fill_normal(columns, N * 3, 3);
    for (size_t row = 0; row < N; row++)
        columns[row * 3 + 1] = -2 * columns[row * 3];
    ddpi_orthonormalize(columns, N, 3);
    double left = 0;
    for (size_t row = 0; row < N; row++) {
        ck_assert(columns[row * 3 + 1] == 0);
        left += pow(columns[row * 3 + 2], 2);
    }
    ck_assert_double_eq_tol(left, 1, 1e-6);
    ddpi_orthonormalize(zeros, N, 2);
    for (size_t i = 0; i < N * 2; i++)
        ck_assert(zeros[i] == 0);
}
END_TEST

START_TEST(zero_columns_are_replaced)
{
    float columns[N * 3] = {0}, again[N * 3] = {0};
    for (size_t row = 0; row < N; row++)
        columns[row * 3 + 1] = again[row * 3 + 1] = 1;
    ddpi_orthonormalize(columns, N, 3);
    ddpi_orthonormalize(again, N, 3);
    ddpi_complete_columns(columns, N, 3, 5);
    ddpi_complete_columns(again, N, 3, 5);
    ck_assert_int_eq(memcmp(columns, again, sizeof columns), 0);
    for (size_t a = 0; a < 3; a++)
        for (size_t b = 0; b <= a; b++) {
            double sum = 0;
            for (size_t row = 0; row < N; row++)
                sum += (double)columns[row * 3 + a] * columns[row * 3 + b];
            ck_assert_double_eq_tol(sum, a == b ? 1 : 0, 1e-6);
        }
    ddpi_complete_columns(columns, N, 3, 6);
    ck_assert_int_eq(memcmp(columns, again, sizeof columns), 0); /* nothing is missing */
}
END_TEST

START_TEST(numbers_that_are_not_finite_are_seen)
{
    float values[3] = {1, -FLT_MAX, 0};
    ck_assert(ddpi_is_finite(values, 3));
    values[2] = -INFINITY;
    ck_assert(ddpi_is_finite(values, 2) && !ddpi_is_finite(values, 3));
    values[2] = NAN;
    ck_assert(!ddpi_is_finite(values, 3));
}
END_TEST

START_TEST(normal_numbers_depend_on_the_seed_only)
{
    enum { COUNT = 20000 };
    static float a[COUNT], b[COUNT];
    double sum = 0, squares = 0;
    ddpi_fill_normal(a, COUNT, 7);
    ddpi_fill_normal(b, COUNT, 7);
    ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
    ddpi_fill_normal(b, COUNT, 8);
    ck_assert_int_ne(memcmp(a, b, sizeof a), 0);
    for (size_t i = 0; i < COUNT; i++) {
        sum += a[i];
        squares += (double)a[i] * a[i];
    }
    ck_assert_double_eq_tol(sum / COUNT, 0, 0.05);
    ck_assert_double_eq_tol(squares / COUNT, 1, 0.05);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("low_rank");
    TCase *tests = tcase_create("low_rank");
    tcase_add_loop_test(tests, a_matrix_of_that_rank_is_exact, 1, RANK_MOST + 1);
    tcase_add_test(tests, columns_become_orthonormal);
    tcase_add_test(tests, dependent_columns_become_zero);
    tcase_add_test(tests, zero_columns_are_replaced);
    tcase_add_test(tests, numbers_that_are_not_finite_are_seen);
    tcase_add_test(tests, normal_numbers_depend_on_the_seed_only);
    suite_add_tcase(suite, tests);
    return suite;
}
