/*
 * test_reduce_cpu.c - every type with every reduction against plain references, the 16-bit formats
 * completely, and the rules for NaN, signed zeros, wrap-around and odd addresses.
 */
#include "check_main.h"
#include "reduce.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { COUNT = 67, DTYPES = DDP_INT64 + 1, OPS = DDP_PRODUCT + 1 };

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

static float float32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- the 16-bit formats, by their definition and in double ---- */

static double value_of(uint16_t word, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (word >> fraction_bits) & ((1 << exponent_bits) - 1);
    int fraction = word & ((1 << fraction_bits) - 1);
    double sign = (word & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction == 0 ? sign * INFINITY : NAN;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static void check_format(int exponent_bits, float (*widen)(uint16_t), uint16_t (*narrow)(float))
{
    for (uint32_t word = 0; word <= UINT16_MAX; word++) {
        float wide = widen((uint16_t)word);
        double expected = value_of((uint16_t)word, exponent_bits);
        if (isnan(expected)) {
            ck_assert(isnan(wide));
            ck_assert(isnan(value_of(narrow(wide), exponent_bits)));
            continue;
        }
        ck_assert_msg(wide == (float)expected && !signbit(wide) == !signbit(expected), "%04x",
                      word);
        ck_assert_uint_eq(narrow(wide), word);
    }
}

START_TEST(sixteen_bit_formats_round_trip)
{
    check_format(5, ddpi_float_from_half, ddpi_half_from_float);
    check_format(8, ddpi_float_from_bfloat, ddpi_bfloat_from_float);
}
END_TEST

/* Between two neighbours of the format: the nearer one, and the even one from the middle. */
static void check_rounding(int exponent_bits, uint16_t infinity, uint16_t (*narrow)(float))
{
    for (uint16_t word = 0; word + 1 < infinity; word++) {
        double low = value_of(word, exponent_bits);
        double high = value_of((uint16_t)(word + 1), exponent_bits);
        float middle = (float)((low + high) / 2);
        uint16_t even = (uint16_t)(word + (word & 1));
        ck_assert_uint_eq(narrow(middle), even);
        ck_assert_uint_eq(narrow(nextafterf(middle, -INFINITY)), word);
        ck_assert_uint_eq(narrow(nextafterf(middle, INFINITY)), word + 1);
        ck_assert_uint_eq(narrow(-middle), even | 0x8000);
    }
    double largest = value_of((uint16_t)(infinity - 1), exponent_bits);
    double below = value_of((uint16_t)(infinity - 2), exponent_bits);
    float middle = (float)(largest + (largest - below) / 2);
    ck_assert_uint_eq(narrow(middle), infinity);
    ck_assert_uint_eq(narrow(nextafterf(middle, 0)), infinity - 1);
}

START_TEST(sixteen_bit_formats_round_to_nearest_even)
{
    check_rounding(5, 0x7c00, ddpi_half_from_float);
    check_rounding(8, 0x7f80, ddpi_bfloat_from_float);
    ck_assert_uint_eq(ddpi_half_from_float(1e9F), 0x7c00);
    ck_assert_uint_eq(ddpi_half_from_float(-INFINITY), 0xfc00);
    ck_assert_uint_eq(ddpi_half_from_float(1e-30F), 0);
    ck_assert_uint_eq(ddpi_half_from_float(-1e-30F), 0x8000);
}
END_TEST

/* ---- all types, all reductions ---- */

/* Small whole numbers, so that every type holds every result exactly. */
static int64_t sample(unsigned which, size_t i)
{
    static const int8_t values[] = {3, -2, 0, 7, -5, 1, 8, -8, 2, -1, 4};
    return values[(i * (which + 2) + which) % (sizeof values / sizeof *values)];
}

static void put(void *buffer, size_t i, ddp_dtype dtype, int64_t value)
{
    union {
        float f32;
        double f64;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
    } element = {0};
    switch (dtype) {
    case DDP_FLOAT32:
        element.f32 = (float)value;
        break;
    case DDP_FLOAT64:
        element.f64 = (double)value;
        break;
    case DDP_FLOAT16:
        element.u16 = ddpi_half_from_float((float)value);
        break;
    case DDP_BFLOAT16:
        element.u16 = ddpi_bfloat_from_float((float)value);
        break;
    case DDP_INT32:
        element.i32 = (int32_t)value;
        break;
    case DDP_INT64:
        element.i64 = value;
        break;
    }
    memcpy((char *)buffer + i * ddp_dtype_size(dtype), &element, ddp_dtype_size(dtype));
}

static int64_t reference(int64_t a, int64_t b, ddp_reduce_op op)
{
    switch (op) {
    case DDP_SUM:
    case DDP_AVERAGE:
        return a + b;
    case DDP_MIN:
        return a < b ? a : b;
    case DDP_MAX:
        return a > b ? a : b;
    case DDP_PRODUCT:
        return a * b;
    }
    return 0;
}

START_TEST(every_type_with_every_reduction)
{
    ddp_dtype dtype = (ddp_dtype)(_i / OPS);
    ddp_reduce_op op = (ddp_reduce_op)(_i % OPS);
    size_t size = ddp_dtype_size(dtype);
    for (size_t offset = 0; offset < 4; offset++) { /* any address will do */
        char a_space[COUNT * 8 + 4], b_space[COUNT * 8 + 4], expected[COUNT * 8];
        char *a = a_space + offset, *b = b_space + 3 - offset;
        for (size_t i = 0; i < COUNT; i++) {
            put(a, i, dtype, sample(0, i));
            put(b, i, dtype, sample(1, i));
            int64_t result = reference(sample(0, i), sample(1, i), op);
            put(expected, i, dtype, result == 0 ? 0 : result);
        }
        reduce_pair(a, a, b, COUNT, dtype, op);
        for (size_t i = 0; i < COUNT; i++) {
            /* A product may be -0; as a number it is right. */
            if (op == DDP_PRODUCT && reference(sample(0, i), sample(1, i), op) == 0)
                continue;
            ck_assert_mem_eq(a + i * size, expected + i * size, size);
        }
    }
}
END_TEST

START_TEST(division_by_the_world)
{
    ddp_dtype dtype = (ddp_dtype)_i;
    char values[COUNT * 8], expected[COUNT * 8];
    for (size_t i = 0; i < COUNT; i++) {
        put(values, i, dtype, sample(0, i) * 4);
        put(expected, i, dtype, sample(0, i));
    }
    divide(values, COUNT, dtype, 4);
    ck_assert_mem_eq(values, expected, COUNT * ddp_dtype_size(dtype));
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

/* ---- NaN and zeros, for the four float types through their bits ---- */

struct specials {
    ddp_dtype dtype;
    uint64_t nan, negative_nan, zero, minus_zero, one, minus_one, infinity, minus_infinity;
};

static struct specials specials_of(ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_FLOAT16:
        return (struct specials){dtype, 0x7e01, 0xfe01, 0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00};
    case DDP_BFLOAT16:
        return (struct specials){dtype, 0x7fc1, 0xffc1, 0, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80};
    case DDP_FLOAT32:
        return (struct specials){dtype,         bits32(NAN),      bits32(-NAN),
                                 bits32(0.0F),  bits32(-0.0F),    bits32(1.0F),
                                 bits32(-1.0F), bits32(INFINITY), bits32(-INFINITY)};
    default:
        return (struct specials){DDP_FLOAT64,  bits64(NAN),      bits64(-NAN),
                                 bits64(0.0),  bits64(-0.0),     bits64(1.0),
                                 bits64(-1.0), bits64(INFINITY), bits64(-INFINITY)};
    }
}

/* The little-endian first bytes of the 64-bit words are the element. */
static uint64_t apply(const struct specials *of, ddp_reduce_op op, uint64_t a, uint64_t b)
{
    uint64_t result = 0;
    reduce_pair(&result, &a, &b, 1, of->dtype, op);
    return result;
}

static bool is_nan(const struct specials *of, uint64_t bits)
{
    uint64_t magnitude = bits & ~of->minus_zero;
    return magnitude > of->infinity;
}

START_TEST(nan_is_never_lost)
{
    struct specials of = specials_of((ddp_dtype)_i);
    uint64_t nans[] = {of.nan, of.negative_nan};
    uint64_t others[] = {of.zero,     of.minus_zero,     of.one, of.minus_one,
                         of.infinity, of.minus_infinity, of.nan};
    for (int op = 0; op < OPS; op++)
        for (size_t n = 0; n < 2; n++)
            for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
                ck_assert(is_nan(&of, apply(&of, (ddp_reduce_op)op, nans[n], others[o])));
                ck_assert(is_nan(&of, apply(&of, (ddp_reduce_op)op, others[o], nans[n])));
            }
    ck_assert(is_nan(&of, apply(&of, DDP_SUM, of.infinity, of.minus_infinity)));
}
END_TEST

START_TEST(extremes_order_all_values)
{
    struct specials of = specials_of((ddp_dtype)_i);
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

START_TEST(sixteen_bit_sums_are_made_in_float32)
{
    for (uint32_t i = 0; i <= UINT16_MAX; i += 7) {
        uint16_t a = (uint16_t)i, b = (uint16_t)(i * 40503U), half, bfloat;
        reduce_pair(&half, &a, &b, 1, DDP_FLOAT16, DDP_SUM);
        reduce_pair(&bfloat, &a, &b, 1, DDP_BFLOAT16, DDP_SUM);
        float half_sum = ddpi_float_from_half(a) + ddpi_float_from_half(b);
        float bfloat_sum = ddpi_float_from_bfloat(a) + ddpi_float_from_bfloat(b);
        if (!isnan(half_sum))
            ck_assert_uint_eq(half, ddpi_half_from_float(half_sum));
        if (!isnan(bfloat_sum))
            ck_assert_uint_eq(bfloat, ddpi_bfloat_from_float(bfloat_sum));
    }
    ck_assert(float32(0x7f800000) == INFINITY);
}
END_TEST

START_TEST(names_and_sizes)
{
    ck_assert_str_eq(ddp_dtype_name(DDP_BFLOAT16), "bfloat16");
    ck_assert_str_eq(ddp_dtype_name((ddp_dtype)99), "unknown");
    ck_assert_uint_eq(ddp_dtype_size(DDP_INT64), 8);
    ck_assert_uint_eq(ddp_dtype_size((ddp_dtype)-1), 0);
    ck_assert_str_eq(ddp_reduce_op_name(DDP_PRODUCT), "product");
    ck_assert_str_eq(ddp_reduce_op_name((ddp_reduce_op)99), "unknown");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce_cpu");
    TCase *tcase = tcase_create("arithmetic");
    tcase_add_test(tcase, sixteen_bit_formats_round_trip);
    tcase_add_test(tcase, sixteen_bit_formats_round_to_nearest_even);
    tcase_add_loop_test(tcase, every_type_with_every_reduction, 0, DTYPES * OPS);
    tcase_add_loop_test(tcase, division_by_the_world, 0, DTYPES);
    tcase_add_test(tcase, integer_division_truncates_toward_zero);
    tcase_add_test(tcase, integers_wrap_around);
    tcase_add_loop_test(tcase, nan_is_never_lost, 0, DDP_BFLOAT16 + 1);
    tcase_add_loop_test(tcase, extremes_order_all_values, 0, DDP_BFLOAT16 + 1);
    tcase_add_test(tcase, sixteen_bit_sums_are_made_in_float32);
    tcase_add_test(tcase, names_and_sizes);
    suite_add_tcase(suite, tcase);
    return suite;
}
