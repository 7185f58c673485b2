/*
 * reduce_cpu.c - element arithmetic on the host. Pure.
 *
 * Every loop is written so that the compiler turns it into vector code: no branches in the body,
 * no calls that cannot be inlined. Contraction is off in this file's build, so that a result does
 * not depend on the machine having fused multiply-add.
 */
#include "reduce.h"

#include <string.h>

/* Elements as they lie in the caller's memory or in a ring: at any address. */
#define ANY_ADDRESS __attribute__((aligned(1), may_alias))
typedef float f32_at ANY_ADDRESS;
typedef double f64_at ANY_ADDRESS;
typedef uint16_t u16_at ANY_ADDRESS;
typedef uint32_t u32_at ANY_ADDRESS;
typedef uint64_t u64_at ANY_ADDRESS;

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* All bits of @yes where @condition is 1, of @no where it is 0. */
static inline uint32_t select32(uint32_t condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0U - condition;
    return (yes & mask) | (no & ~mask);
}

/* binary16 has 5 exponent bits with bias 15 and 10 fraction bits; binary32 has 8, 127 and 23. */
static inline float half_to_float(uint16_t half)
{
    const uint32_t rebias = (127U - 15U) << 23;
    uint32_t magnitude = (half & 0x7fffU) << 13;
    uint32_t normal = magnitude + rebias;
    uint32_t special = normal + rebias;
    /* A subnormal is made the fraction of a normal number, whose leading one is then taken off. */
    float leading_one = float_of(rebias + (1U << 23));
    uint32_t subnormal = bits_of(float_of(normal + (1U << 23)) - leading_one);
    uint32_t exponent = half & 0x7c00U;
    uint32_t bits = select32(exponent == 0x7c00U, special, normal);
    bits = select32(exponent == 0, subnormal, bits);
    return float_of(bits | (uint32_t)(half & 0x8000U) << 16);
}

static inline uint16_t float_to_half(float value)
{
    uint32_t sign = bits_of(value) & 0x80000000U;
    uint32_t magnitude = bits_of(value) ^ sign;
    /* Ties to even: add just under half a unit, and the last kept bit. */
    uint32_t normal = (magnitude - ((127U - 15U) << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    /* Adding a number whose unit is the smallest subnormal makes the adder round for us. */
    const uint32_t anchor = (127U - 15U + 23U - 10U + 1U) << 23;
    uint32_t subnormal = bits_of(float_of(magnitude) + float_of(anchor)) - anchor;
    uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    uint32_t half = select32(magnitude < (127U - 14U) << 23, subnormal, normal);
    half = select32(magnitude >= (127U + 16U) << 23, 0x7c00U, half);
    half = select32(magnitude > 0x7f800000U, nan, half);
    return (uint16_t)(half | sign >> 16);
}

static inline float bfloat_to_float(uint16_t bfloat)
{
    return float_of((uint32_t)bfloat << 16);
}

static inline uint16_t float_to_bfloat(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    uint32_t nan = bits >> 16 | 0x40U;
    return (uint16_t)select32((bits & 0x7fffffffU) > 0x7f800000U, nan, rounded);
}

float ddpi_float_from_half(uint16_t half)
{
    return half_to_float(half);
}

uint16_t ddpi_half_from_float(float value)
{
    return float_to_half(value);
}

float ddpi_float_from_bfloat(uint16_t bfloat)
{
    return bfloat_to_float(bfloat);
}

uint16_t ddpi_bfloat_from_float(float value)
{
    return float_to_bfloat(value);
}

/*
 * Minimum and maximum of floats, on their bits. Flipping the magnitude bits of negative numbers
 * gives integers in the order of the numbers, with -0 before +0. A NaN wins; two of them: the
 * first.
 */
#define DEFINE_EXTREMES(name, bits_t, signed_t, top, infinity)                             \
    static inline signed_t order_##name(bits_t value)                                      \
    {                                                                                      \
        bits_t flip =                                                                      \
            (bits_t)(0U - (bits_t)(value >> (top))) & (bits_t)(((bits_t)1 << (top)) - 1);  \
        return (signed_t)(bits_t)(value ^ flip);                                           \
    }                                                                                      \
    static inline bits_t is_nan_##name(bits_t value)                                       \
    {                                                                                      \
        return (bits_t)(value & (bits_t)(((bits_t)1 << (top)) - 1)) > (infinity);          \
    }                                                                                      \
    static inline bits_t min_##name(bits_t a, bits_t b)                                    \
    {                                                                                      \
        bits_t less = order_##name(a) < order_##name(b);                                   \
        bits_t take_a =                                                                    \
            (bits_t)(is_nan_##name(a) | (bits_t)(less & (bits_t)(is_nan_##name(b) ^ 1U))); \
        return take_a ? a : b;                                                             \
    }                                                                                      \
    static inline bits_t max_##name(bits_t a, bits_t b)                                    \
    {                                                                                      \
        bits_t more = order_##name(a) > order_##name(b);                                   \
        bits_t take_a =                                                                    \
            (bits_t)(is_nan_##name(a) | (bits_t)(more & (bits_t)(is_nan_##name(b) ^ 1U))); \
        return take_a ? a : b;                                                             \
    }

DEFINE_EXTREMES(f16, uint16_t, int16_t, 15, 0x7c00U)
DEFINE_EXTREMES(bf16, uint16_t, int16_t, 15, 0x7f80U)
DEFINE_EXTREMES(f32, uint32_t, int32_t, 31, 0x7f800000U)
DEFINE_EXTREMES(f64, uint64_t, int64_t, 63, 0x7ff0000000000000U)

/* One loop: dst[i] = EXPRESSION of x = a[i] and y = b[i]. */
#define DEFINE_LOOP(name, element, expression)                                              \
    static void loop_##name(void *dst_at, const void *a_at, const void *b_at, size_t count) \
    {                                                                                       \
        element *dst = dst_at;                                                              \
        const element *a = a_at, *b = b_at;                                                 \
        for (size_t i = 0; i < count; i++) {                                                \
            element x = a[i], y = b[i];                                                     \
            dst[i] = (expression);                                                          \
        }                                                                                   \
    }

DEFINE_LOOP(sum_f32, f32_at, x + y)
DEFINE_LOOP(sum_f64, f64_at, x + y)
DEFINE_LOOP(sum_f16, u16_at, float_to_half(half_to_float(x) + half_to_float(y)))
DEFINE_LOOP(sum_bf16, u16_at, float_to_bfloat(bfloat_to_float(x) + bfloat_to_float(y)))
DEFINE_LOOP(sum_i32, u32_at, x + y)
DEFINE_LOOP(sum_i64, u64_at, x + y)
DEFINE_LOOP(product_f32, f32_at, x *y)
DEFINE_LOOP(product_f64, f64_at, x *y)
DEFINE_LOOP(product_f16, u16_at, float_to_half(half_to_float(x) * half_to_float(y)))
DEFINE_LOOP(product_bf16, u16_at, float_to_bfloat(bfloat_to_float(x) * bfloat_to_float(y)))
DEFINE_LOOP(product_i32, u32_at, x *y)
DEFINE_LOOP(product_i64, u64_at, x *y)
DEFINE_LOOP(min_f32, u32_at, min_f32(x, y))
DEFINE_LOOP(min_f64, u64_at, min_f64(x, y))
DEFINE_LOOP(min_f16, u16_at, min_f16(x, y))
DEFINE_LOOP(min_bf16, u16_at, min_bf16(x, y))
DEFINE_LOOP(min_i32, u32_at, (int32_t)x < (int32_t)y ? x : y)
DEFINE_LOOP(min_i64, u64_at, (int64_t)x < (int64_t)y ? x : y)
DEFINE_LOOP(max_f32, u32_at, max_f32(x, y))
DEFINE_LOOP(max_f64, u64_at, max_f64(x, y))
DEFINE_LOOP(max_f16, u16_at, max_f16(x, y))
DEFINE_LOOP(max_bf16, u16_at, max_bf16(x, y))
DEFINE_LOOP(max_i32, u32_at, (int32_t)x > (int32_t)y ? x : y)
DEFINE_LOOP(max_i64, u64_at, (int64_t)x > (int64_t)y ? x : y)

typedef void reduce_loop(void *dst, const void *a, const void *b, size_t count);

#define LOOPS_OF(op)                                                        \
    {                                                                       \
        [DDP_FLOAT32] = loop_##op##_f32, [DDP_FLOAT64] = loop_##op##_f64,   \
        [DDP_FLOAT16] = loop_##op##_f16, [DDP_BFLOAT16] = loop_##op##_bf16, \
        [DDP_INT32] = loop_##op##_i32, [DDP_INT64] = loop_##op##_i64        \
    }

static reduce_loop *const loops[][DDP_INT64 + 1] = {
    [DDP_SUM] = LOOPS_OF(sum), [DDP_AVERAGE] = LOOPS_OF(sum),     [DDP_MIN] = LOOPS_OF(min),
    [DDP_MAX] = LOOPS_OF(max), [DDP_PRODUCT] = LOOPS_OF(product),
};

void ddpi_reduce(void *dst, const void *a, const void *b, size_t count, ddp_dtype dtype,
                 ddp_reduce_op op)
{
    loops[op][dtype](dst, a, b, count);
}

#define DEFINE_DIVIDE(name, element, expression)                               \
    static void divide_##name(void *values_at, size_t count, uint32_t divisor) \
    {                                                                          \
        element *values = values_at;                                           \
        for (size_t i = 0; i < count; i++) {                                   \
            element x = values[i];                                             \
            values[i] = (expression);                                          \
        }                                                                      \
    }

DEFINE_DIVIDE(f32, f32_at, x / (float)divisor)
DEFINE_DIVIDE(f64, f64_at, x / (double)divisor)
DEFINE_DIVIDE(f16, u16_at, float_to_half(half_to_float(x) / (float)divisor))
DEFINE_DIVIDE(bf16, u16_at, float_to_bfloat(bfloat_to_float(x) / (float)divisor))
DEFINE_DIVIDE(i32, u32_at, (uint32_t)((int64_t)(int32_t)x / divisor))
DEFINE_DIVIDE(i64, u64_at, (uint64_t)((int64_t)x / (int64_t)divisor))

void ddpi_divide(void *values, size_t count, ddp_dtype dtype, uint32_t divisor)
{
    static void (*const divides[])(void *values, size_t count, uint32_t divisor) = {
        [DDP_FLOAT32] = divide_f32,   [DDP_FLOAT64] = divide_f64, [DDP_FLOAT16] = divide_f16,
        [DDP_BFLOAT16] = divide_bf16, [DDP_INT32] = divide_i32,   [DDP_INT64] = divide_i64,
    };
    divides[dtype](values, count, divisor);
}
