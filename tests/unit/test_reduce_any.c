/*
 * test_reduce_any.c - folds of 1 to 70 inputs: for every type the same bits as one rounding of the
 * inputs in order, at odd addresses, and over tile borders.
 */
#include "check_main.h"
#include "reduce.h"
#include "reduce_any.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { DTYPES = DDP_INT64 + 1, OPS = DDP_PRODUCT + 1 };

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

static float widened(ddp_dtype dtype, uint16_t word)
{
    return dtype == DDP_FLOAT16 ? ddpi_float_from_half(word) : ddpi_float_from_bfloat(word);
}

static uint16_t narrowed(ddp_dtype dtype, float value)
{
    return dtype == DDP_FLOAT16 ? ddpi_half_from_float(value) : ddpi_bfloat_from_float(value);
}

static void put(ddp_dtype dtype, uint8_t *at, uint32_t input, size_t i)
{
    float single = small(input, i);
    double real = (double)single / 3;
    uint16_t word = narrowed(dtype, single);
    uint64_t bits = noise(input, i);
    const void *const sources[] = {
        [DDP_FLOAT32] = &single, [DDP_FLOAT64] = &real, [DDP_FLOAT16] = &word,
        [DDP_BFLOAT16] = &word,  [DDP_INT32] = &bits,   [DDP_INT64] = &bits};
    memcpy(at, sources[dtype], ddp_dtype_size(dtype));
}

/* Element @i of all inputs, in order: the 16-bit types in float32, the others pair by pair. */
static void put_expected(const struct ddpi_fold *fold, uint8_t *at, size_t i)
{
    size_t size = ddp_dtype_size(fold->dtype);
    bool is_short = size == sizeof(uint16_t);
    ddp_dtype dtype = is_short ? DDP_FLOAT32 : fold->dtype;
    uint8_t sum[8], next[8];
    for (uint32_t k = 0; k < fold->nin; k++) {
        memcpy(next, fold->in + k * fold->stride + i * size, size);
        if (is_short) {
            uint16_t word;
            memcpy(&word, next, sizeof word);
            float wide = widened(fold->dtype, word);
            memcpy(next, &wide, sizeof wide);
        }
        struct ddpi_reduction pair = {.in = {k == 0 ? next : sum, next},
                                      .out = {sum},
                                      .nin = k == 0 ? 1 : 2,
                                      .nout = 1,
                                      .count = 1,
                                      .dtype = dtype,
                                      .op = fold->op,
                                      .divisor = k + 1 == fold->nin ? fold->divisor : 1};
        ddpi_reduce_many(&pair);
    }
    if (is_short) {
        float wide;
        memcpy(&wide, sum, sizeof wide);
        uint16_t word = narrowed(fold->dtype, wide);
        memcpy(sum, &word, sizeof word);
    }
    memcpy(at, sum, size);
}

static void check_fold(uint32_t nin, size_t count, ddp_dtype dtype, ddp_reduce_op op)
{
    size_t size = ddp_dtype_size(dtype), stride = count * size + 1;
    uint8_t *in = malloc(nin * stride), *out = malloc(count * size + 2), expected[8];
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
    for (size_t i = 0; i < count; i++) {
        put_expected(&fold, expected, i);
        ck_assert_mem_eq(out + 1 + i * size, expected, size);
    }
    ck_assert(out[0] == 0xa5 && out[1 + count * size] == 0xa5);
    free(in);
    free(out);
}

START_TEST(one_rounding_however_many)
{
    static const uint32_t inputs[] = {1, 2, 3, 15, 16, 17, 18, 31, 32, 33, 70};
    ddp_dtype dtype = (ddp_dtype)(_i / OPS);
    ddp_reduce_op op = (ddp_reduce_op)(_i % OPS);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
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
        in[i] = ddpi_half_from_float(i == 0 ? 2048 : 1);
    ddpi_fold(&(struct ddpi_fold){.in = (const uint8_t *)in,
                                  .stride = sizeof *in,
                                  .nin = 31,
                                  .out = &out,
                                  .count = 1,
                                  .dtype = DDP_FLOAT16,
                                  .op = DDP_SUM,
                                  .divisor = 1});
    ck_assert(ddpi_float_from_half(out) == 2078);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce_any");
    TCase *tcase = tcase_create("fold");
    tcase_add_loop_test(tcase, one_rounding_however_many, 0, DTYPES * OPS);
    tcase_add_test(tcase, nothing_is_lost_between_the_calls);
    suite_add_tcase(suite, tcase);
    return suite;
}
