/*
 * reduce_cpu.c - element arithmetic on the host. Pure. The kernels in cuda/kernels/reduce_copy.cu
 * give the same bits, except inside a NaN.
 *
 * A reduction goes through its buffers in blocks, so that intermediate results stay in the
 * processor's first-level cache. Every loop is written such that the compiler vectorizes it: no
 * branches in the body, no calls that cannot be inlined. Contraction is off in this file's build,
 * so that a result does not depend on whether the machine has fused multiply-add.
 */
#include "reduce.h"

#include <stdbool.h>
#include <string.h>

/* Elements at any address, as in the caller's memory or in a ring. */
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

/* One loop: dst[i] = EXPRESSION of x = a[i] and y = b[i]; @dst may be @a or @b. */
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

/* dst[i] = a[i] op b[i], rounded. */
typedef void pair_loop(void *dst, const void *a, const void *b, size_t count);

#define LOOPS_OF(op)                                                        \
    {                                                                       \
        [DDP_FLOAT32] = loop_##op##_f32, [DDP_FLOAT64] = loop_##op##_f64,   \
        [DDP_FLOAT16] = loop_##op##_f16, [DDP_BFLOAT16] = loop_##op##_bf16, \
        [DDP_INT32] = loop_##op##_i32, [DDP_INT64] = loop_##op##_i64        \
    }

static pair_loop *const pairs[][DDP_INT64 + 1] = {
    [DDP_SUM] = LOOPS_OF(sum), [DDP_AVERAGE] = LOOPS_OF(sum),     [DDP_MIN] = LOOPS_OF(min),
    [DDP_MAX] = LOOPS_OF(max), [DDP_PRODUCT] = LOOPS_OF(product),
};

/* One loop: dst[i] = EXPRESSION of x = src[i]; @dst may be @src. */
#define DEFINE_DIVIDE(name, dst_element, src_element, expression)                               \
    static void divide_##name(void *dst_at, const void *src_at, size_t count, uint32_t divisor) \
    {                                                                                           \
        dst_element *dst = dst_at;                                                              \
        const src_element *src = src_at;                                                        \
        for (size_t i = 0; i < count; i++) {                                                    \
            src_element x = src[i];                                                             \
            dst[i] = (expression);                                                              \
        }                                                                                       \
    }

DEFINE_DIVIDE(f32, f32_at, f32_at, x / (float)divisor)
DEFINE_DIVIDE(f64, f64_at, f64_at, x / (double)divisor)
DEFINE_DIVIDE(f16, u16_at, u16_at, float_to_half(half_to_float(x) / (float)divisor))
DEFINE_DIVIDE(bf16, u16_at, u16_at, float_to_bfloat(bfloat_to_float(x) / (float)divisor))
/* A double holds the quotient of two such integers closely enough to cut it off exactly, and there
 * are vector instructions for that. */
DEFINE_DIVIDE(i32, u32_at, u32_at, (uint32_t)(int32_t)((double)(int32_t)x / (double)divisor))
DEFINE_DIVIDE(i64, u64_at, u64_at, (uint64_t)((int64_t)x / (int64_t)divisor))
DEFINE_DIVIDE(wide_f16, u16_at, float, float_to_half(x / (float)divisor))
DEFINE_DIVIDE(wide_bf16, u16_at, float, float_to_bfloat(x / (float)divisor))

typedef void divide_loop(void *dst, const void *src, size_t count, uint32_t divisor);

static divide_loop *const divides[] = {
    [DDP_FLOAT32] = divide_f32,   [DDP_FLOAT64] = divide_f64, [DDP_FLOAT16] = divide_f16,
    [DDP_BFLOAT16] = divide_bf16, [DDP_INT32] = divide_i32,   [DDP_INT64] = divide_i64,
};

/* ---- 16-bit types, folded in float32 ---- */

#define DEFINE_WIDE(format, to_float, from_float)                                       \
    static void widen_##format(float *restrict wide, const u16_at *in, size_t count)    \
    {                                                                                   \
        for (size_t i = 0; i < count; i++)                                              \
            wide[i] = to_float(in[i]);                                                  \
    }                                                                                   \
    static void add_##format(float *restrict wide, const u16_at *in, size_t count)      \
    {                                                                                   \
        for (size_t i = 0; i < count; i++)                                              \
            wide[i] += to_float(in[i]);                                                 \
    }                                                                                   \
    static void multiply_##format(float *restrict wide, const u16_at *in, size_t count) \
    {                                                                                   \
        for (size_t i = 0; i < count; i++)                                              \
            wide[i] *= to_float(in[i]);                                                 \
    }                                                                                   \
    static void narrow_##format(u16_at *out, const float *restrict wide, size_t count)  \
    {                                                                                   \
        for (size_t i = 0; i < count; i++)                                              \
            out[i] = from_float(wide[i]);                                               \
    }

DEFINE_WIDE(f16, half_to_float, float_to_half)
DEFINE_WIDE(bf16, bfloat_to_float, float_to_bfloat)

typedef void wide_loop(float *restrict wide, const u16_at *in, size_t count);

struct format {
    wide_loop *widen, *add, *multiply;
    void (*narrow)(u16_at *out, const float *restrict wide, size_t count);
    divide_loop *divide;
};

static const struct format half = {widen_f16, add_f16, multiply_f16, narrow_f16, divide_wide_f16};
static const struct format bfloat = {widen_bf16, add_bf16, multiply_bf16, narrow_bf16,
                                     divide_wide_bf16};

/* ---- reductions of many inputs ---- */

enum { BLOCK = 1024 }; /* elements */

/* The partial result of a block. */
union partial {
    float wide[BLOCK];
    uint64_t plain[BLOCK];
};

/* Elements @first to @first + @count of @work into the first output, in float32 between. */
static void fold_wide(const struct ddpi_reduction *work, const struct format *format,
                      union partial *partial, size_t first, size_t count)
{
    wide_loop *fold = work->op == DDP_PRODUCT ? format->multiply : format->add;
    format->widen(partial->wide, (const u16_at *)work->in[0] + first, count);
    for (uint32_t k = 1; k < work->nin; k++)
        fold(partial->wide, (const u16_at *)work->in[k] + first, count);
    u16_at *out = (u16_at *)work->out[0] + first;
    if (work->divisor == 1)
        format->narrow(out, partial->wide, count);
    else
        format->divide(out, partial->wide, count, work->divisor);
}

/* @count elements from byte @offset on, in the type itself. The output may be any of the inputs:
 * nothing is written to it before the last one is read. */
static void fold_plain(const struct ddpi_reduction *work, union partial *partial, size_t offset,
                       size_t count)
{
    pair_loop *pair = pairs[work->op][work->dtype];
    void *out = (char *)work->out[0] + offset;
    const void *folded = (const char *)work->in[0] + offset;
    for (uint32_t k = 1; k < work->nin; k++) {
        bool complete = k + 1 == work->nin && work->divisor == 1;
        void *dst = complete ? out : partial->plain;
        pair(dst, folded, (const char *)work->in[k] + offset, count);
        folded = dst;
    }
    if (work->divisor != 1)
        divides[work->dtype](out, folded, count, work->divisor);
    else if (folded != out)
        memcpy(out, folded, count * ddp_dtype_size(work->dtype));
}

/* The format in which to fold @work; NULL: its own type, for a minimum or maximum is one of the
 * inputs, and the sum or product of two is rounded as it is made. */
static const struct format *wide_format(const struct ddpi_reduction *work)
{
    bool extreme = work->op == DDP_MIN || work->op == DDP_MAX;
    bool rounded_once = work->nin == 1 || (work->nin == 2 && work->divisor == 1);
    if (extreme || rounded_once)
        return NULL;
    return work->dtype == DDP_FLOAT16 ? &half : work->dtype == DDP_BFLOAT16 ? &bfloat : NULL;
}

static void reduce_blocks(const struct ddpi_reduction *work)
{
    const struct format *format = wide_format(work);
    size_t size = ddp_dtype_size(work->dtype);
    union partial partial;
    for (size_t first = 0; first < work->count; first += BLOCK) {
        size_t count = work->count - first < BLOCK ? work->count - first : BLOCK;
        if (format != NULL)
            fold_wide(work, format, &partial, first, count);
        else
            fold_plain(work, &partial, first * size, count);
        for (uint32_t j = 1; j < work->nout; j++)
            memcpy((char *)work->out[j] + first * size, (char *)work->out[0] + first * size,
                   count * size);
    }
}

void ddpi_reduce_many(const struct ddpi_reduction *work)
{
    /* A hop of the ring: a single loop does it all. */
    if (work->nin == 2 && work->nout == 1 && work->divisor == 1)
        pairs[work->op][work->dtype](work->out[0], work->in[0], work->in[1], work->count);
    else
        reduce_blocks(work);
}
