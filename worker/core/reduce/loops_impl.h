/*
 * loops_impl.h - the loops, and the table of them, DDPI_LOOPS, which is named DDPI_LOOPS_NAME. Each
 * instruction set includes this file once.
 *
 * The loops are written such that the compiler makes vector code of them: no branches in the body,
 * no calls that cannot be inlined. The build leaves contraction off, so that a result does not
 * depend on whether the machine has fused multiply-add.
 */
#include "floats_impl.h"
#include "loops.h"

/* Elements at any address, as in the caller's memory or in a ring. */
#define ANY_ADDRESS __attribute__((aligned(1), may_alias))
typedef float f32_at ANY_ADDRESS;
typedef double f64_at ANY_ADDRESS;
typedef int8_t i8_at ANY_ADDRESS;
typedef int16_t i16_at ANY_ADDRESS;
typedef int32_t i32_at ANY_ADDRESS;
typedef int64_t i64_at ANY_ADDRESS;
typedef uint8_t u8_at ANY_ADDRESS;
typedef uint16_t u16_at ANY_ADDRESS;
typedef uint32_t u32_at ANY_ADDRESS;
typedef uint64_t u64_at ANY_ADDRESS;

/* Buffers are the same or do not overlap: no element depends on one before it. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* ---- minimum and maximum ---- */

/*
 * The narrow floats, on their bits. Flipping the magnitude bits of negative numbers gives integers
 * in the order of the numbers, with -0 before +0, and NaN at both ends. Taken round from one end to
 * the other, all NaN are beyond the infinity that a NaN wins against.
 */
#define DEFINE_NARROW_EXTREMES(name, bits_t, top, infinity)                                  \
    static inline bits_t order_##name(bits_t value)                                          \
    {                                                                                        \
        bits_t negative = (bits_t)(0U - (unsigned)(value >> (top)));                         \
        return (bits_t)(value ^ (negative & (bits_t)((1U << (top)) - 1U)));                  \
    }                                                                                        \
    static inline bits_t min_##name(bits_t a, bits_t b)                                      \
    {                                                                                        \
        const bits_t first = (infinity) + 1U;                                                \
        bits_t x = (bits_t)(order_##name(a) - first), y = (bits_t)(order_##name(b) - first); \
        return order_##name((bits_t)((x < y ? x : y) + first));                              \
    }                                                                                        \
    static inline bits_t max_##name(bits_t a, bits_t b)                                      \
    {                                                                                        \
        const bits_t first = (bits_t) ~(infinity);                                           \
        bits_t x = (bits_t)(order_##name(a) - first), y = (bits_t)(order_##name(b) - first); \
        return order_##name((bits_t)((x > y ? x : y) + first));                              \
    }

DEFINE_NARROW_EXTREMES(f16, uint16_t, 15, 0x7c00U)
DEFINE_NARROW_EXTREMES(bf16, uint16_t, 15, 0x7f80U)
DEFINE_NARROW_EXTREMES(e5m2, uint8_t, 7, 0x7cU)
DEFINE_NARROW_EXTREMES(e4m3, uint8_t, 7, 0x7eU)

/*
 * The others by comparing twice: of two zeros, the comparisons give both, and their bits together
 * are -0 or +0; of a NaN and a number they give both, too, and the bits of all but the maximum are
 * a NaN.
 */
#define DEFINE_EXTREMES(name, element, bits_t, nan)                          \
    static inline bits_t bits_##name(element value)                          \
    {                                                                        \
        bits_t bits;                                                         \
        memcpy(&bits, &value, sizeof bits);                                  \
        return bits;                                                         \
    }                                                                        \
    static inline element value_##name(bits_t bits)                          \
    {                                                                        \
        element value;                                                       \
        memcpy(&value, &bits, sizeof value);                                 \
        return value;                                                        \
    }                                                                        \
    static inline element min_##name(element x, element y)                   \
    {                                                                        \
        element one = x < y ? x : y, other = y < x ? y : x;                  \
        return value_##name(bits_##name(one) | bits_##name(other));          \
    }                                                                        \
    static inline element max_##name(element x, element y)                   \
    {                                                                        \
        element one = x > y ? x : y, other = y > x ? y : x;                  \
        bits_t lost = __builtin_isunordered(x, y) ? (nan) : 0;               \
        return value_##name((bits_##name(one) & bits_##name(other)) | lost); \
    }

DEFINE_EXTREMES(f32, float, uint32_t, 0x7fc00000U)
DEFINE_EXTREMES(f64, double, uint64_t, 0x7ff8000000000000U)

/* ---- two inputs ---- */

/* dst[i] = EXPRESSION of x = a[i] and y = b[i] */
#define DEFINE_PAIR(name, element, value, expression)                                       \
    static void pair_##name(void *dst_at, const void *a_at, const void *b_at, size_t count) \
    {                                                                                       \
        element *dst = dst_at;                                                              \
        const element *a = a_at, *b = b_at;                                                 \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                      \
        {                                                                                   \
            value x = a[i], y = b[i];                                                       \
            dst[i] = (value)(expression);                                                   \
        }                                                                                   \
    }

#define DEFINE_INTEGER(bits)                                               \
    DEFINE_PAIR(sum_u##bits, u##bits##_at, uint##bits##_t, x + y)          \
    DEFINE_PAIR(product_u##bits, u##bits##_at, uint##bits##_t, 1U * x * y) \
    DEFINE_PAIR(min_u##bits, u##bits##_at, uint##bits##_t, x < y ? x : y)  \
    DEFINE_PAIR(max_u##bits, u##bits##_at, uint##bits##_t, x > y ? x : y)  \
    DEFINE_PAIR(min_i##bits, i##bits##_at, int##bits##_t, x < y ? x : y)   \
    DEFINE_PAIR(max_i##bits, i##bits##_at, int##bits##_t, x > y ? x : y)   \
    DEFINE_PAIR(and_u##bits, u##bits##_at, uint##bits##_t, x &y)           \
    DEFINE_PAIR(or_u##bits, u##bits##_at, uint##bits##_t, x | y)           \
    DEFINE_PAIR(xor_u##bits, u##bits##_at, uint##bits##_t, x ^ y)

DEFINE_INTEGER(8)
DEFINE_INTEGER(16)
DEFINE_INTEGER(32)
DEFINE_INTEGER(64)

DEFINE_PAIR(or_bool, u8_at, uint8_t, (x | y) != 0)
DEFINE_PAIR(and_bool, u8_at, uint8_t, (x != 0) & (y != 0))
DEFINE_PAIR(xor_bool, u8_at, uint8_t, (x != 0) ^ (y != 0))

#define DEFINE_FLOAT(name, element)                               \
    DEFINE_PAIR(sum_##name, name##_at, element, x + y)            \
    DEFINE_PAIR(product_##name, name##_at, element, x *y)         \
    DEFINE_PAIR(min_##name, name##_at, element, min_##name(x, y)) \
    DEFINE_PAIR(max_##name, name##_at, element, max_##name(x, y))

DEFINE_FLOAT(f32, float)
DEFINE_FLOAT(f64, double)

#define DEFINE_NARROW_EXTREME_PAIRS(name, element, value)     \
    DEFINE_PAIR(min_##name, element, value, min_##name(x, y)) \
    DEFINE_PAIR(max_##name, element, value, max_##name(x, y))

DEFINE_NARROW_EXTREME_PAIRS(f16, u16_at, uint16_t)
DEFINE_NARROW_EXTREME_PAIRS(bf16, u16_at, uint16_t)
DEFINE_NARROW_EXTREME_PAIRS(e4m3, u8_at, uint8_t)
DEFINE_NARROW_EXTREME_PAIRS(e5m2, u8_at, uint8_t)

/* Complex numbers: all but the product is that of twice as many reals. The subtraction is written
 * as the addition that it is: of one addition and one subtraction GCC 12 makes a fused instruction,
 * even with contraction off. */
#define DEFINE_COMPLEX(name, real_name, element, value)                                \
    static void pair_sum_##name(void *dst, const void *a, const void *b, size_t count) \
    {                                                                                  \
        pair_sum_##real_name(dst, a, b, 2 * count);                                    \
    }                                                                                  \
    static void pair_product_##name(void *dst_at, const void *a_at, const void *b_at,  \
                                    size_t count)                                      \
    {                                                                                  \
        element *dst = dst_at;                                                         \
        const element *a = a_at, *b = b_at;                                            \
        INDEPENDENT for (size_t i = 0; i < 2 * count; i += 2)                          \
        {                                                                              \
            value a_real = a[i], a_imag = a[i + 1], b_real = b[i], b_imag = b[i + 1];  \
            dst[i] = a_real * b_real + -a_imag * b_imag;                               \
            dst[i + 1] = a_real * b_imag + a_imag * b_real;                            \
        }                                                                              \
    }

DEFINE_COMPLEX(c64, f32, f32_at, float)
DEFINE_COMPLEX(c128, f64, f64_at, double)

/* ---- one input ---- */

/* dst[i] = EXPRESSION of x = src[i] and @by */
#define DEFINE_ONE(verb, name, dst_element, src_element, value, by_t, expression)      \
    static void verb##_##name(void *dst_at, const void *src_at, size_t count, by_t by) \
    {                                                                                  \
        dst_element *dst = dst_at;                                                     \
        const src_element *src = src_at;                                               \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                 \
        {                                                                              \
            value x = src[i];                                                          \
            dst[i] = expression;                                                       \
        }                                                                              \
    }

#define DEFINE_DIVIDE(name, dst, src, value, expression) \
    DEFINE_ONE(divide, name, dst, src, value, uint32_t, expression)
#define DEFINE_SCALE(name, element, value, expression) \
    DEFINE_ONE(scale, name, element, element, value, double, expression)

/* A double holds the quotient of two integers of 32 bits closely enough to cut it off exactly, and
 * there are vector instructions for that. */
DEFINE_DIVIDE(u8, u8_at, u8_at, uint8_t, (uint8_t)((float)x / (float)by))
DEFINE_DIVIDE(i8, i8_at, i8_at, int8_t, (int8_t)((float)x / (float)by))
DEFINE_DIVIDE(u16, u16_at, u16_at, uint16_t, (uint16_t)((float)x / (float)by))
DEFINE_DIVIDE(i16, i16_at, i16_at, int16_t, (int16_t)((float)x / (float)by))
DEFINE_DIVIDE(u32, u32_at, u32_at, uint32_t, (uint32_t)((double)x / (double)by))
DEFINE_DIVIDE(i32, i32_at, i32_at, int32_t, (int32_t)((double)x / (double)by))
DEFINE_DIVIDE(u64, u64_at, u64_at, uint64_t, x / by)
DEFINE_DIVIDE(i64, i64_at, i64_at, int64_t, x / (int64_t)by)
DEFINE_DIVIDE(f32, f32_at, f32_at, float, x / (float)by)
DEFINE_DIVIDE(f64, f64_at, f64_at, double, x / (double)by)

DEFINE_SCALE(f32, f32_at, float, x *(float)by)
DEFINE_SCALE(f64, f64_at, double, x *by)

#define DEFINE_REALS(name, real_name)                                                \
    static void divide_##name(void *dst, const void *src, size_t count, uint32_t by) \
    {                                                                                \
        divide_##real_name(dst, src, 2 * count, by);                                 \
    }                                                                                \
    static void scale_##name(void *dst, const void *src, size_t count, double by)    \
    {                                                                                \
        scale_##real_name(dst, src, 2 * count, by);                                  \
    }

DEFINE_REALS(c64, f32)
DEFINE_REALS(c128, f64)

/* ---- narrow floats, computed in float32 ---- */

/* @step for each i below @count; @wide_step for @lanes of them, where there are vectors. */
#ifdef WIDE_LANES
#define NARROW_LOOP(lanes, wide_step, step)    \
    size_t i = 0;                              \
    for (; count - i >= (lanes); i += (lanes)) \
        wide_step;                             \
    for (; i < count; i++)                     \
    step
#else
#define NARROW_LOOP(lanes, wide_step, step) INDEPENDENT for (size_t i = 0; i < count; i++) step
#endif

#define DEFINE_NARROW_PAIR(verb, name, element, op, to_float, from_float)                        \
    static void pair_##verb##_##name(void *dst_at, const void *a_at, const void *b_at,           \
                                     size_t count)                                               \
    {                                                                                            \
        element *dst = dst_at;                                                                   \
        const element *a = a_at, *b = b_at;                                                      \
        NARROW_LOOP(WIDE_LANES, store_##name(dst + i, load_##name(a + i) op load_##name(b + i)), \
                    dst[i] = from_float(to_float(a[i]) op to_float(b[i])));                      \
    }

/* Elements in even and odd places apart: no lane has to be crossed. */
#define DEFINE_BF16_PAIR(verb, op)                                                                 \
    static void pair_##verb##_bf16(void *dst_at, const void *a_at, const void *b_at, size_t count) \
    {                                                                                              \
        u16_at *dst = dst_at;                                                                      \
        const u16_at *a = a_at, *b = b_at;                                                         \
        NARROW_LOOP(2 * WIDE_LANES, wide_##verb##_bf16(dst + i, a + i, b + i),                     \
                    dst[i] = float_to_bfloat(bfloat_to_float(a[i]) op bfloat_to_float(b[i])));     \
    }

#define DEFINE_NARROW_ONE(verb, name, element, by_t, op, to_float, from_float)          \
    static void verb##_##name(void *dst_at, const void *src_at, size_t count, by_t by)  \
    {                                                                                   \
        element *dst = dst_at;                                                          \
        const element *src = src_at;                                                    \
        const float operand = (float)by;                                                \
        NARROW_LOOP(WIDE_LANES, store_##name(dst + i, load_##name(src + i) op operand), \
                    dst[i] = from_float(to_float(src[i]) op operand));                  \
    }

#define DEFINE_WIDE_FOLD(verb, name, element, op, to_float)                               \
    static void verb##_##name(float *partial, const void *in_at, size_t count)            \
    {                                                                                     \
        const element *in = in_at;                                                        \
        NARROW_LOOP(WIDE_LANES,                                                           \
                    store_f32(partial + i, load_f32(partial + i) op load_##name(in + i)), \
                    partial[i] = partial[i] op to_float(in[i]));                          \
    }

#define DEFINE_WIDE_ENDS(name, element, to_float, from_float)                           \
    static void widen_##name(float *partial, const void *in_at, size_t count)           \
    {                                                                                   \
        const element *in = in_at;                                                      \
        NARROW_LOOP(WIDE_LANES, store_f32(partial + i, load_##name(in + i)),            \
                    partial[i] = to_float(in[i]));                                      \
    }                                                                                   \
    static void narrow_##name(void *out_at, const float *partial, size_t count)         \
    {                                                                                   \
        element *out = out_at;                                                          \
        NARROW_LOOP(WIDE_LANES, store_##name(out + i, load_f32(partial + i)),           \
                    out[i] = from_float(partial[i]));                                   \
    }                                                                                   \
    static void divide_wide_##name(void *out_at, const void *partial_at, size_t count,  \
                                   uint32_t by)                                         \
    {                                                                                   \
        element *out = out_at;                                                          \
        const f32_at *partial = partial_at;                                             \
        const float divisor = (float)by;                                                \
        NARROW_LOOP(WIDE_LANES, store_##name(out + i, load_f32(partial + i) / divisor), \
                    out[i] = from_float(partial[i] / divisor));                         \
    }

#define DEFINE_NARROW(name, element, to_float, from_float)                      \
    DEFINE_NARROW_ONE(divide, name, element, uint32_t, /, to_float, from_float) \
    DEFINE_NARROW_ONE(scale, name, element, double, *, to_float, from_float)    \
    DEFINE_WIDE_FOLD(add, name, element, +, to_float)                           \
    DEFINE_WIDE_FOLD(multiply, name, element, *, to_float)                      \
    DEFINE_WIDE_ENDS(name, element, to_float, from_float)

DEFINE_NARROW_PAIR(sum, f16, u16_at, +, half_to_float, float_to_half)
DEFINE_NARROW_PAIR(product, f16, u16_at, *, half_to_float, float_to_half)
DEFINE_NARROW_PAIR(sum, e4m3, u8_at, +, e4m3_to_float, float_to_e4m3)
DEFINE_NARROW_PAIR(product, e4m3, u8_at, *, e4m3_to_float, float_to_e4m3)
DEFINE_NARROW_PAIR(sum, e5m2, u8_at, +, e5m2_to_float, float_to_e5m2)
DEFINE_NARROW_PAIR(product, e5m2, u8_at, *, e5m2_to_float, float_to_e5m2)
DEFINE_BF16_PAIR(sum, +)
DEFINE_BF16_PAIR(product, *)

DEFINE_NARROW(f16, u16_at, half_to_float, float_to_half)
DEFINE_NARROW(bf16, u16_at, bfloat_to_float, float_to_bfloat)
DEFINE_NARROW(e4m3, u8_at, e4m3_to_float, float_to_e4m3)
DEFINE_NARROW(e5m2, u8_at, e5m2_to_float, float_to_e5m2)

/* ---- inf and NaN ---- */

/*
 * All bits of their exponent are set, so to add the lowest of these to the magnitude carries into
 * the place of the sign. Of e4m3 only the magnitude with all bits is a NaN.
 */
#define MAGNITUDE(bits_t)             ((bits_t)((bits_t) ~(bits_t)0 >> 1))
#define CARRY(bits_t, bits, exponent) ((bits_t)(((bits)&MAGNITUDE(bits_t)) + (exponent)))

#define DEFINE_NON_FINITE(name, element, bits_t, exponent)          \
    static bool non_finite_##name(const void *src_at, size_t count) \
    {                                                               \
        const element *src = src_at;                                \
        bits_t carries = 0;                                         \
        for (size_t i = 0; i < count; i++)                          \
            carries |= CARRY(bits_t, src[i], exponent);             \
        return carries > MAGNITUDE(bits_t);                         \
    }

#define F32_EXPONENT 0x00800000U
#define F64_EXPONENT 0x0010000000000000U

DEFINE_NON_FINITE(f32, u32_at, uint32_t, F32_EXPONENT)
DEFINE_NON_FINITE(f64, u64_at, uint64_t, F64_EXPONENT)
DEFINE_NON_FINITE(f16, u16_at, uint16_t, 0x0400U)
DEFINE_NON_FINITE(bf16, u16_at, uint16_t, 0x0080U)
DEFINE_NON_FINITE(e4m3, u8_at, uint8_t, 0x01U)
DEFINE_NON_FINITE(e5m2, u8_at, uint8_t, 0x04U)

/* The last pass of a reduction, which looks at what it writes. */
#define DEFINE_CHECKED(name, element, bits_t, exponent)                                            \
    static bool checked_sum_##name(void *dst_at, const void *a_at, const void *b_at, size_t count) \
    {                                                                                              \
        name##_at *dst = dst_at;                                                                   \
        const name##_at *a = a_at, *b = b_at;                                                      \
        bits_t carries = 0;                                                                        \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                             \
        {                                                                                          \
            element sum = a[i] + b[i];                                                             \
            dst[i] = sum;                                                                          \
            carries |= CARRY(bits_t, bits_##name(sum), exponent);                                  \
        }                                                                                          \
        return carries > MAGNITUDE(bits_t);                                                        \
    }                                                                                              \
    static bool checked_divide_##name(void *dst_at, const void *src_at, size_t count, uint32_t by) \
    {                                                                                              \
        name##_at *dst = dst_at;                                                                   \
        const name##_at *src = src_at;                                                             \
        bits_t carries = 0;                                                                        \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                             \
        {                                                                                          \
            element quotient = src[i] / (element)by;                                               \
            dst[i] = quotient;                                                                     \
            carries |= CARRY(bits_t, bits_##name(quotient), exponent);                             \
        }                                                                                          \
        return carries > MAGNITUDE(bits_t);                                                        \
    }

DEFINE_CHECKED(f32, float, uint32_t, F32_EXPONENT)
DEFINE_CHECKED(f64, double, uint64_t, F64_EXPONENT)

#define DEFINE_CHECKED_REALS(name, real_name)                                                \
    static bool non_finite_##name(const void *src, size_t count)                             \
    {                                                                                        \
        return non_finite_##real_name(src, 2 * count);                                       \
    }                                                                                        \
    static bool checked_sum_##name(void *dst, const void *a, const void *b, size_t count)    \
    {                                                                                        \
        return checked_sum_##real_name(dst, a, b, 2 * count);                                \
    }                                                                                        \
    static bool checked_divide_##name(void *dst, const void *src, size_t count, uint32_t by) \
    {                                                                                        \
        return checked_divide_##real_name(dst, src, 2 * count, by);                          \
    }

DEFINE_CHECKED_REALS(c64, f32)
DEFINE_CHECKED_REALS(c128, f64)

/* ---- the table ---- */

/* Of all types with an arithmetic operation @op; @of_bool, if bools have it. */
#define FLOATS(op)                                                      \
    [DDP_FLOAT32] = pair_##op##_f32, [DDP_FLOAT64] = pair_##op##_f64,   \
    [DDP_FLOAT16] = pair_##op##_f16, [DDP_BFLOAT16] = pair_##op##_bf16, \
    [DDP_FLOAT8_E4M3] = pair_##op##_e4m3, [DDP_FLOAT8_E5M2] = pair_##op##_e5m2
#define COMPLEXES(op) [DDP_COMPLEX64] = pair_##op##_c64, [DDP_COMPLEX128] = pair_##op##_c128
#define UNSIGNED_INTEGERS(op)                                                                     \
    [DDP_UINT8] = pair_##op##_u8, [DDP_UINT16] = pair_##op##_u16, [DDP_UINT32] = pair_##op##_u32, \
    [DDP_UINT64] = pair_##op##_u64
#define SIGNED_INTEGERS(op, sign)                                             \
    [DDP_INT8] = pair_##op##_##sign##8, [DDP_INT16] = pair_##op##_##sign##16, \
    [DDP_INT32] = pair_##op##_##sign##32, [DDP_INT64] = pair_##op##_##sign##64

#define SUMS         FLOATS(sum), COMPLEXES(sum)
#define INTEGER_SUMS UNSIGNED_INTEGERS(sum), SIGNED_INTEGERS(sum, u)
#define BITWISE(op)                                                                             \
    {                                                                                           \
        UNSIGNED_INTEGERS(op),                                                                  \
            SIGNED_INTEGERS(op, u), [DDP_BOOL] = pair_##op##_bool, [DDP_BYTE] = pair_##op##_u8, \
    }
#define EXTREMES(op, of_bool)                                                            \
    {                                                                                    \
        FLOATS(op), UNSIGNED_INTEGERS(op), SIGNED_INTEGERS(op, i), [DDP_BOOL] = of_bool, \
    }
#define ONE_OF_EACH_FLOAT(verb)                                                         \
    [DDP_FLOAT32] = verb##_f32, [DDP_FLOAT64] = verb##_f64, [DDP_FLOAT16] = verb##_f16, \
    [DDP_BFLOAT16] = verb##_bf16, [DDP_FLOAT8_E4M3] = verb##_e4m3,                      \
    [DDP_FLOAT8_E5M2] = verb##_e5m2, [DDP_COMPLEX64] = verb##_c64, [DDP_COMPLEX128] = verb##_c128
#define ONE_OF_EACH_WIDE(verb)                                                            \
    [DDP_FLOAT32] = verb##_f32, [DDP_FLOAT64] = verb##_f64, [DDP_COMPLEX64] = verb##_c64, \
    [DDP_COMPLEX128] = verb##_c128
#define WIDE_LOOPS(name)                                                             \
    {                                                                                \
        widen_##name, add_##name, multiply_##name, narrow_##name, divide_wide_##name \
    }

const struct ddpi_loops DDPI_LOOPS = {
    .name = DDPI_LOOPS_NAME,
    .pair =
        {
            [DDP_SUM] = {SUMS, INTEGER_SUMS, [DDP_BOOL] = pair_or_bool},
            [DDP_AVERAGE] = {SUMS, INTEGER_SUMS},
            [DDP_AVERAGE_BEFORE] = {SUMS},
            [DDP_PREMUL_SUM] = {SUMS},
            [DDP_PRODUCT] = {FLOATS(product), COMPLEXES(product), UNSIGNED_INTEGERS(product),
                             SIGNED_INTEGERS(product, u), [DDP_BOOL] = pair_and_bool},
            [DDP_MIN] = EXTREMES(min, pair_and_bool),
            [DDP_MAX] = EXTREMES(max, pair_or_bool),
            [DDP_BIT_AND] = BITWISE(and),
            [DDP_BIT_OR] = BITWISE(or),
            [DDP_BIT_XOR] = BITWISE(xor),
        },
    .divide = {ONE_OF_EACH_FLOAT(divide), [DDP_UINT8] = divide_u8, [DDP_INT8] = divide_i8,
               [DDP_UINT16] = divide_u16, [DDP_INT16] = divide_i16, [DDP_UINT32] = divide_u32,
               [DDP_INT32] = divide_i32, [DDP_UINT64] = divide_u64, [DDP_INT64] = divide_i64},
    .scale = {ONE_OF_EACH_FLOAT(scale)},
    .non_finite = {ONE_OF_EACH_FLOAT(non_finite)},
    .checked_pair =
        {
            [DDP_SUM] = {ONE_OF_EACH_WIDE(checked_sum)},
            [DDP_AVERAGE] = {ONE_OF_EACH_WIDE(checked_sum)},
            [DDP_AVERAGE_BEFORE] = {ONE_OF_EACH_WIDE(checked_sum)},
            [DDP_PREMUL_SUM] = {ONE_OF_EACH_WIDE(checked_sum)},
        },
    .checked_divide = {ONE_OF_EACH_WIDE(checked_divide)},
    .wide =
        {
            [DDP_FLOAT16] = WIDE_LOOPS(f16),
            [DDP_BFLOAT16] = WIDE_LOOPS(bf16),
            [DDP_FLOAT8_E4M3] = WIDE_LOOPS(e4m3),
            [DDP_FLOAT8_E5M2] = WIDE_LOOPS(e5m2),
        },
};
