/*
 * test_reduce_cpu.c - every type with every reduction against a plain reference, the formats of 8
 * and 16 bits completely, and the rules for NaN, signed zeros, wrap-around, bools and odd
 * addresses.
 */
#include "check_main.h"
#include "elements.h"
#include "floats.h"
#include "sample.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { COUNT = 67, DTYPES = DDPI_DTYPES, OPS = DDPI_REDUCE_OPS };

static void reduce_pair(void *dst, const void *a, const void *b, size_t count, ddp_dtype dtype,
                        ddp_reduce_op op)
{
    ddpi_reduce_many(&(struct ddpi_reduction){.in = {a, b},
                                              .out = {dst},
                                              .nin = 2,
                                              .nout = 1,
                                              .count = count,
                                              .dtype = dtype,
                                              .op = op,
                                              .divisor = 1});
}

static void divide(void *values, size_t count, ddp_dtype dtype, uint32_t divisor)
{
    ddpi_reduce_many(&(struct ddpi_reduction){.in = {values},
                                              .out = {values},
                                              .nin = 1,
                                              .nout = 1,
                                              .count = count,
                                              .dtype = dtype,
                                              .op = DDP_AVERAGE,
                                              .divisor = divisor});
}

static uint32_t bits32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- the formats of 8 and 16 bits, by their definition and in double ---- */

struct format {
    ddp_dtype dtype;
    int bits, exponent_bits;
    uint16_t largest; /* the magnitude bits of the largest number */
    bool has_infinity;
};

static const struct format formats[] = {
    {DDP_FLOAT16, 16, 5, 0x7bff, true},
    {DDP_BFLOAT16, 16, 8, 0x7f7f, true},
    {DDP_FLOAT8_E5M2, 8, 5, 0x7b, true},
    {DDP_FLOAT8_E4M3, 8, 4, 0x7e, false},
};

enum { FORMATS = sizeof formats / sizeof *formats };

static double value_of(const struct format *format, uint32_t word)
{
    int fraction_bits = format->bits - 1 - format->exponent_bits;
    int bias = (1 << (format->exponent_bits - 1)) - 1;
    uint32_t magnitude = word & ((1U << (format->bits - 1)) - 1);
    double sign = magnitude != word ? -1.0 : 1.0;
    if (magnitude > format->largest)
        return format->has_infinity && magnitude == format->largest + 1U ? sign * INFINITY : NAN;
    int exponent = (int)(magnitude >> fraction_bits);
    int fraction = (int)(magnitude & ((1U << fraction_bits) - 1));
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static uint16_t narrow(const struct format *format, float value)
{
    uint16_t word = 0;
    ddpi_narrow(&word, &value, 1, format->dtype);
    return word;
}

START_TEST(narrow_formats_round_trip)
{
    const struct format *format = &formats[_i];
    for (uint32_t word = 0; word < 1U << format->bits; word++) {
        uint16_t element = (uint16_t)word;
        float wide;
        ddpi_widen(&wide, &element, 1, format->dtype);
        double expected = value_of(format, word);
        if (isnan(expected)) {
            ck_assert(isnan(wide));
            ck_assert(isnan(value_of(format, narrow(format, wide))));
            continue;
        }
        ck_assert_msg(wide == (float)expected && !signbit(wide) == !signbit(expected), "%04x",
                      word);
        ck_assert_uint_eq(narrow(format, wide), word);
    }
}
END_TEST

/* Between two neighbours of the format: the nearer one, and the even one from the middle. */
START_TEST(narrow_formats_round_to_nearest_even)
{
    const struct format *format = &formats[_i];
    uint16_t sign = (uint16_t)(1U << (format->bits - 1));
    for (uint16_t word = 0; word < format->largest; word++) {
        float middle = (float)((value_of(format, word) + value_of(format, word + 1U)) / 2);
        uint16_t even = (uint16_t)(word + (word & 1));
        ck_assert_uint_eq(narrow(format, middle), even);
        ck_assert_uint_eq(narrow(format, nextafterf(middle, -INFINITY)), word);
        ck_assert_uint_eq(narrow(format, nextafterf(middle, INFINITY)), word + 1);
        ck_assert_uint_eq(narrow(format, -middle), even | sign);
    }
}
END_TEST

/* Halfway to the number that would follow the largest one: infinity, or NaN where there is none. */
START_TEST(what_is_too_large)
{
    const struct format *format = &formats[_i];
    uint16_t beyond = (uint16_t)(format->largest + 1);
    double largest = value_of(format, format->largest);
    double below = value_of(format, format->largest - 1U);
    float middle = (float)(largest + (largest - below) / 2);
    ck_assert_uint_eq(narrow(format, nextafterf(middle, 0)), format->largest);
    /* The number that would follow is even, unless it is a NaN. */
    ck_assert_uint_eq(narrow(format, middle), format->has_infinity ? beyond : format->largest);
    ck_assert_uint_eq(narrow(format, nextafterf(middle, INFINITY)), beyond);
    ck_assert_uint_eq(narrow(format, 3e38F), format->dtype == DDP_BFLOAT16 ? 0x7f62 : beyond);
    ck_assert_uint_eq(narrow(format, INFINITY), beyond);
    ck_assert_uint_eq(narrow(format, -INFINITY), beyond | 1U << (format->bits - 1));
    ck_assert(isnan(value_of(format, narrow(format, NAN))));
}
END_TEST

START_TEST(one_value_at_a_time)
{
    ck_assert_uint_eq(half_from_float(-1e-30F), 0x8000);
    ck_assert_uint_eq(e5m2_from_float(1.5F), 0x3e);
    ck_assert_uint_eq(e4m3_from_float(-448.0F), 0xfe);
    ck_assert(float_from_half(0x3c00) == 1 && float_from_bfloat(0x3f80) == 1);
    ck_assert(float_from_e5m2(0x3c) == 1 && float_from_e4m3(0x38) == 1);
}
END_TEST

/* ---- all types, all reductions ---- */

START_TEST(every_type_with_every_reduction)
{
    ddp_dtype dtype = (ddp_dtype)(_i / OPS);
    ddp_reduce_op op = (ddp_reduce_op)(_i % OPS);
    size_t size = ddp_dtype_size(dtype);
    uint64_t state = (uint64_t)_i;
    if (!elements_reduce(dtype, op))
        return;
    struct ddpi_reduction work = {
        .nin = 2, .nout = 1, .count = COUNT, .dtype = dtype, .op = op, .divisor = 1};
    for (size_t offset = 0; offset < 4; offset++) { /* any address will do */
        char a_space[COUNT * DDPI_DTYPE_SIZE_MOST + 4], b_space[sizeof a_space];
        char before[sizeof a_space], *a = a_space + offset, *b = b_space + 3 - offset;
        elements_fill(a, COUNT, dtype, &state);
        elements_fill(b, COUNT, dtype, &state);
        memcpy(before, a, COUNT * size);
        reduce_pair(a, a, b, COUNT, dtype, op);
        for (size_t i = 0; i < COUNT; i++) {
            element_bits in[] = {elements_get(before, i, dtype), elements_get(b, i, dtype)};
            ck_assert(elements_agree(dtype, elements_get(a, i, dtype), elements_folded(&work, in)));
        }
    }
}
END_TEST

/* Small whole numbers, so that every type holds every result exactly. */
START_TEST(division_by_the_world)
{
    static const int8_t numbers[] = {3, -2, 0, 7, -5, 1, 8, -8, 2, -1, 4};
    ddp_dtype dtype = (ddp_dtype)_i;
    size_t size = ddp_dtype_size(dtype);
    char values[COUNT * DDPI_DTYPE_SIZE_MOST], expected[sizeof values];
    if (!elements_reduce(dtype, DDP_AVERAGE))
        return;
    bool has_sign = elements_are_floats(dtype) || dtype == DDP_INT8 || dtype == DDP_INT16 ||
                    dtype == DDP_INT32 || dtype == DDP_INT64;
    for (size_t i = 0; i < COUNT; i++) {
        int number = numbers[i % sizeof numbers];
        number = has_sign || number > 0 ? number : -number;
        element_bits sum = elements_of_double(dtype, number * 4);
        element_bits quotient = elements_of_double(dtype, number);
        memcpy(values + i * size, &sum, size);
        memcpy(expected + i * size, &quotient, size);
    }
    divide(values, COUNT, dtype, 4);
    ck_assert_mem_eq(values, expected, COUNT * size);
}
END_TEST

/* Every element of the short integers, by divisors around every power of two. */
START_TEST(short_integers_are_divided_exactly)
{
    static const ddp_dtype dtypes[] = {DDP_INT8, DDP_UINT8, DDP_INT16, DDP_UINT16};
    enum { ALL = 65536 };
    static uint16_t in[ALL], out[ALL];
    ddp_dtype dtype = dtypes[_i];
    size_t size = ddp_dtype_size(dtype);
    for (uint32_t i = 0; i < ALL; i++) {
        uint16_t word = (uint16_t)i;
        memcpy((char *)in + i % ALL * size % sizeof in, &word, size);
    }
    for (uint64_t divisor = 2; divisor < UINT32_MAX; divisor = divisor * 5 / 3) {
        struct ddpi_reduction work = {.nin = 1, .nout = 1, .count = sizeof in / size};
        work.dtype = dtype;
        work.op = DDP_AVERAGE;
        work.divisor = (uint32_t)divisor;
        memcpy(out, in, sizeof in);
        divide(out, work.count, dtype, work.divisor);
        size_t wrong = 0;
        for (size_t i = 0; i < work.count; i++) {
            element_bits before = elements_get(in, i, dtype);
            wrong += elements_get(out, i, dtype) != elements_folded(&work, &before);
        }
        ck_assert_uint_eq(wrong, 0);
    }
}
END_TEST

START_TEST(integer_division_truncates_toward_zero)
{
    int32_t small[] = {7, -7, INT32_MIN, INT32_MAX};
    divide(small, 4, DDP_INT32, 2);
    ck_assert_int_eq(small[0], 3);
    ck_assert_int_eq(small[1], -3);
    ck_assert_int_eq(small[2], INT32_MIN / 2);
    ck_assert_int_eq(small[3], INT32_MAX / 2);
    int64_t large[] = {7, -7, INT64_MIN, INT64_MAX};
    divide(large, 4, DDP_INT64, 3);
    ck_assert_int_eq(large[0], 2);
    ck_assert_int_eq(large[1], -2);
    ck_assert(large[2] == INT64_MIN / 3 && large[3] == INT64_MAX / 3);
}
END_TEST

START_TEST(integers_wrap_around)
{
    int32_t a32[] = {INT32_MAX, INT32_MIN, INT32_MIN}, b32[] = {1, -1, -1};
    reduce_pair(a32, a32, b32, 2, DDP_INT32, DDP_SUM);
    ck_assert_int_eq(a32[0], INT32_MIN);
    ck_assert_int_eq(a32[1], INT32_MAX);
    reduce_pair(a32 + 2, a32 + 2, b32 + 2, 1, DDP_INT32, DDP_PRODUCT);
    ck_assert_int_eq(a32[2], INT32_MIN);
    int64_t a64[] = {INT64_MAX, INT64_MIN}, b64[] = {1, -1};
    reduce_pair(a64, a64, b64, 2, DDP_INT64, DDP_SUM);
    ck_assert(a64[0] == INT64_MIN && a64[1] == INT64_MAX);
}
END_TEST

/* Bytes other than 0 and 1 count as 1, and no result has them. */
START_TEST(bools_are_0_or_1)
{
    const uint8_t a[] = {0, 0, 1, 1, 2, 2, 0, 255}, b[] = {0, 1, 0, 1, 0, 4, 8, 255};
    const uint8_t either[] = {0, 1, 1, 1, 1, 1, 1, 1}, both[] = {0, 0, 0, 1, 0, 1, 0, 1};
    const uint8_t one[] = {0, 1, 1, 0, 1, 0, 1, 0};
    const struct {
        ddp_reduce_op op;
        const uint8_t *expected;
    } rows[] = {{DDP_SUM, either}, {DDP_MAX, either},   {DDP_BIT_OR, either}, {DDP_PRODUCT, both},
                {DDP_MIN, both},   {DDP_BIT_AND, both}, {DDP_BIT_XOR, one}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t result[sizeof a];
        reduce_pair(result, a, b, sizeof a, DDP_BOOL, rows[i].op);
        ck_assert_mem_eq(result, rows[i].expected, sizeof result);
    }
}
END_TEST

/* ---- factors ---- */

START_TEST(products_are_rounded_to_the_type)
{
    static const double factors[] = {1.0 / 3, 2, -0.7, 1e-5, 0, 1e30, INFINITY, 1};
    ddp_dtype dtype = (ddp_dtype)_i;
    uint64_t state = (uint64_t)_i;
    if (!elements_reduce(dtype, DDP_PREMUL_SUM))
        return;
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        char space[COUNT * DDPI_DTYPE_SIZE_MOST + 1], scaled[sizeof space], *in = space + 1;
        elements_fill(in, COUNT, dtype, &state);
        ddpi_scale(scaled, in, COUNT, dtype, factors[f]);
        for (size_t i = 0; i < COUNT; i++)
            ck_assert(
                elements_agree(dtype, elements_get(scaled, i, dtype),
                               elements_scaled(dtype, elements_get(in, i, dtype), factors[f])));
        ddpi_scale(in, in, COUNT, dtype, factors[f]);
        ck_assert_uint_eq(elements_differ(dtype, in, scaled, COUNT), COUNT);
    }
}
END_TEST

/* As DistributedDataParallel does it with three ranks: each gradient times float32(1 / 3), then the
 * sum. Dividing the sum gives other bits. */
START_TEST(an_average_that_divides_first)
{
    enum { RANKS = 3 };
    float in[RANKS][COUNT], out[COUNT], divided[COUNT];
    const double factor[RANKS] = {1.0 / RANKS, 1.0 / RANKS, 1.0 / RANKS};
    struct ddpi_reduction work = {.in = {in[0], in[1], in[2]}, .out = {out}, .nin = RANKS};
    size_t other = 0;
    for (size_t i = 0; i < RANKS * COUNT; i++)
        in[i / COUNT][i % COUNT] = (float)(i * 7 % 31) / 7.0F - 2;
    work.nout = 1;
    work.count = COUNT;
    work.dtype = DDP_FLOAT32;
    work.op = DDP_AVERAGE_BEFORE;
    work.divisor = 1;
    work.factor = factor;
    ddpi_reduce_many(&work);
    work.out[0] = divided;
    work.op = DDP_AVERAGE;
    work.divisor = RANKS;
    work.factor = NULL;
    ddpi_reduce_many(&work);
    for (size_t i = 0; i < COUNT; i++) {
        volatile float a = in[0][i] * (1.0F / RANKS), b = in[1][i] * (1.0F / RANKS),
                       c = in[2][i] * (1.0F / RANKS), ab = a + b, expected = ab + c;
        ck_assert_uint_eq(bits32(out[i]), bits32(expected));
        other += bits32(out[i]) != bits32(divided[i]);
    }
    ck_assert_uint_gt(other, 0);
}
END_TEST

/* ---- NaN and zeros, for the float types through their bits ---- */

struct specials {
    ddp_dtype dtype;
    uint64_t nan, negative_nan, zero, minus_zero, one, minus_one, infinity, minus_infinity;
};

static struct specials specials_of(int i)
{
    static const ddp_dtype dtypes[] = {DDP_FLOAT32,  DDP_FLOAT64,     DDP_FLOAT16,
                                       DDP_BFLOAT16, DDP_FLOAT8_E5M2, DDP_FLOAT8_E4M3};
    ddp_dtype dtype = dtypes[i];
    /* Without infinities the largest numbers take their place. */
    double most = dtype == DDP_FLOAT8_E4M3 ? 448 : INFINITY;
#define SPECIAL(value) (uint64_t) elements_of_double(dtype, value)
    struct specials of = {dtype,         SPECIAL(NAN),  0,
                          SPECIAL(0.0),  SPECIAL(-0.0), SPECIAL(1.0),
                          SPECIAL(-1.0), SPECIAL(most), SPECIAL(-most)};
#undef SPECIAL
    of.negative_nan = of.nan | of.minus_zero;
    return of;
}

enum { FLOATS = 6 };

/* The little-endian first bytes of the 64-bit words are the element. */
static uint64_t apply(const struct specials *of, ddp_reduce_op op, uint64_t a, uint64_t b)
{
    uint64_t result = 0;
    reduce_pair(&result, &a, &b, 1, of->dtype, op);
    return result;
}

static bool is_nan(const struct specials *of, uint64_t bits)
{
    return elements_is_nan(of->dtype, bits);
}

START_TEST(nan_is_never_lost)
{
    struct specials of = specials_of(_i);
    uint64_t nans[] = {of.nan, of.negative_nan};
    uint64_t others[] = {of.zero,     of.minus_zero,     of.one, of.minus_one,
                         of.infinity, of.minus_infinity, of.nan};
    for (int op = 0; op < OPS; op++)
        for (size_t n = 0; n < 2 && elements_reduce(of.dtype, (ddp_reduce_op)op); n++)
            for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
                ck_assert(is_nan(&of, apply(&of, (ddp_reduce_op)op, nans[n], others[o])));
                ck_assert(is_nan(&of, apply(&of, (ddp_reduce_op)op, others[o], nans[n])));
            }
    if (of.dtype != DDP_FLOAT8_E4M3)
        ck_assert(is_nan(&of, apply(&of, DDP_SUM, of.infinity, of.minus_infinity)));
}
END_TEST

START_TEST(extremes_order_all_values)
{
    struct specials of = specials_of(_i);
    uint64_t ascending[] = {of.minus_infinity, of.minus_one, of.minus_zero,
                            of.zero,           of.one,       of.infinity};
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++) {
            size_t low = a < b ? a : b, high = a < b ? b : a;
            ck_assert_uint_eq(apply(&of, DDP_MIN, ascending[a], ascending[b]), ascending[low]);
            ck_assert_uint_eq(apply(&of, DDP_MAX, ascending[a], ascending[b]), ascending[high]);
        }
}
END_TEST

START_TEST(names_and_sizes)
{
    ck_assert_str_eq(ddp_dtype_name(DDP_BFLOAT16), "bfloat16");
    ck_assert_str_eq(ddp_dtype_name((ddp_dtype)99), "unknown");
    ck_assert_uint_eq(ddp_dtype_size(DDP_INT64), 8);
    ck_assert_uint_eq(ddp_dtype_size(DDP_COMPLEX128), DDPI_DTYPE_SIZE_MOST);
    /* What programs were compiled with. */
    ck_assert_int_eq(DDP_INT64, 5);
    ck_assert_int_eq(DDP_UINT8, 6);
    ck_assert_int_eq(DDP_BYTE, 17);
    ck_assert_int_eq(DDP_PRODUCT, 4);
    ck_assert_int_eq(DDP_AVERAGE_BEFORE, 9);
    ck_assert_uint_eq(ddp_dtype_size((ddp_dtype)-1), 0);
    ck_assert_str_eq(ddp_reduce_op_name(DDP_PRODUCT), "product");
    ck_assert_str_eq(ddp_reduce_op_name((ddp_reduce_op)99), "unknown");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce_cpu");
    TCase *tcase = tcase_create("arithmetic");
    tcase_add_loop_test(tcase, narrow_formats_round_trip, 0, FORMATS);
    tcase_add_loop_test(tcase, narrow_formats_round_to_nearest_even, 0, FORMATS);
    tcase_add_loop_test(tcase, what_is_too_large, 0, FORMATS);
    tcase_add_test(tcase, one_value_at_a_time);
    add_sample(tcase, every_type_with_every_reduction, 0, DTYPES * OPS);
    tcase_add_loop_test(tcase, division_by_the_world, 0, DTYPES);
    tcase_add_loop_test(tcase, short_integers_are_divided_exactly, 0, 4);
    tcase_add_test(tcase, integer_division_truncates_toward_zero);
    tcase_add_test(tcase, integers_wrap_around);
    tcase_add_test(tcase, bools_are_0_or_1);
    tcase_add_loop_test(tcase, products_are_rounded_to_the_type, 0, DTYPES);
    tcase_add_test(tcase, an_average_that_divides_first);
    tcase_add_loop_test(tcase, nan_is_never_lost, 0, FLOATS);
    tcase_add_loop_test(tcase, extremes_order_all_values, 0, FLOATS);
    tcase_add_test(tcase, names_and_sizes);
    suite_add_tcase(suite, tcase);
    return suite;
}
