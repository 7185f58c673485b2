/*
 * test_reduce_any.c - folds of 1 to 70 inputs: for every type the same bits as one rounding of the
 * inputs in order, at odd addresses, and over tile borders.
 */
#include "check_main.h"
#include "elements.h"
#include "floats.h"
#include "reduce_any.h"
#include "sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { DTYPES = DDPI_DTYPES, OPS = DDPI_REDUCE_OPS, MOST = 70 };

static uint64_t noise(uint32_t input, size_t i)
{
    uint64_t random = (input * 7919ULL + i + 1) * 0x9e3779b97f4a7c15U;
    return random ^ random >> 31;
}

/* Magnitudes near one, so that nothing overflows and everything is rounded. */
static float small(uint32_t input, size_t i)
{
    uint64_t random = noise(input, i);
    float magnitude = 0.75F + (float)(random % 65536) / 131072;
    return random >> 40 & 1 ? magnitude : -magnitude;
}

static void put(ddp_dtype dtype, uint8_t *at, uint32_t input, size_t i)
{
    bool is_bool = dtype == DDP_BOOL;
    element_bits bits = is_bool ? noise(input, i) & 1 : noise(input, i);
    if (elements_reduce(dtype, DDP_PREMUL_SUM)) /* not an integer */
        bits = elements_of_double(dtype, (double)small(input, i));
    memcpy(at, &bits, ddp_dtype_size(dtype));
}

/* Element @i of all inputs, in order and rounded once. */
static element_bits expected_at(const struct ddpi_fold *fold, size_t i)
{
    element_bits in[MOST];
    struct ddpi_reduction work = {
        .nin = fold->nin, .dtype = fold->dtype, .op = fold->op, .divisor = fold->divisor};
    for (uint32_t k = 0; k < fold->nin; k++)
        in[k] = elements_get(fold->in + k * fold->stride, i, fold->dtype);
    return elements_folded(&work, in);
}

/* Again: it says what is true of the result; with an inf in one input, too. */
static void check_finite_check(struct ddpi_fold fold)
{
    bool found = false;
    uint8_t *last = (uint8_t *)(uintptr_t)fold.in + (fold.nin - 1) * fold.stride;
    element_bits inf = elements_of_double(fold.dtype, INFINITY);
    if (!ddpi_dtype_has_non_finite(fold.dtype))
        return;
    fold.non_finite = &found;
    ddpi_fold(&fold);
    ck_assert_int_eq(found, !elements_are_finite(fold.out, fold.count, fold.dtype));
    if (fold.count == 0 || fold.op == DDP_MIN)
        return;
    memcpy(last + (fold.count - 1) * ddp_dtype_size(fold.dtype), &inf, ddp_dtype_size(fold.dtype));
    ddpi_fold(&fold);
    ck_assert(found);
}

static void check_fold(uint32_t nin, size_t count, ddp_dtype dtype, ddp_reduce_op op)
{
    size_t size = ddp_dtype_size(dtype), stride = count * size + 1;
    uint8_t *in = malloc(nin * stride), *out = malloc(count * size + 2);
    ck_assert(in != NULL && out != NULL);
    memset(out, 0xa5, count * size + 2);
    for (uint32_t k = 0; k < nin; k++)
        for (size_t i = 0; i < count; i++)
            put(dtype, in + k * stride + i * size, k, i);
    struct ddpi_fold fold = {.in = in,
                             .stride = stride,
                             .nin = nin,
                             .out = out + 1,
                             .count = count,
                             .dtype = dtype,
                             .op = op,
                             .divisor = op == DDP_AVERAGE ? nin : 1};
    ddpi_fold(&fold);
    for (size_t i = 0; i < count; i++)
        ck_assert(elements_agree(dtype, elements_get(out + 1, i, dtype), expected_at(&fold, i)));
    check_finite_check(fold);
    ck_assert(out[0] == 0xa5 && out[1 + count * size] == 0xa5);
    free(in);
    free(out);
}

START_TEST(one_rounding_however_many)
{
    static const uint32_t inputs[] = {1, 2, 3, 15, 16, 17, 18, 31, 32, 33, MOST};
    ddp_dtype dtype = (ddp_dtype)(_i / OPS);
    ddp_reduce_op op = (ddp_reduce_op)(_i % OPS);
    for (size_t i = 0; elements_reduce(dtype, op) && i < sizeof inputs / sizeof *inputs; i++) {
        check_fold(inputs[i], 3, dtype, op);
        check_fold(inputs[i], 513, dtype, op);
    }
}
END_TEST

/* 2048 and thirty times 1: rounded at any place between, halves would stay at 2048. */
START_TEST(nothing_is_lost_between_the_calls)
{
    uint16_t in[31], out;
    for (size_t i = 0; i < 31; i++)
        in[i] = half_from_float(i == 0 ? 2048 : 1);
    ddpi_fold(&(struct ddpi_fold){.in = (const uint8_t *)in,
                                  .stride = sizeof *in,
                                  .nin = 31,
                                  .out = &out,
                                  .count = 1,
                                  .dtype = DDP_FLOAT16,
                                  .op = DDP_SUM,
                                  .divisor = 1});
    ck_assert(float_from_half(out) == 2078);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce_any");
    TCase *tcase = tcase_create("fold");
    add_sample(tcase, one_rounding_however_many, 0, DTYPES * OPS);
    tcase_add_test(tcase, nothing_is_lost_between_the_calls);
    suite_add_tcase(suite, tcase);
    return suite;
}
