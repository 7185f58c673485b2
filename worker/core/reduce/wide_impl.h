/*
 * wide_impl.h - vectors of WIDE_LANES float32 that are loaded from narrow floats and stored as
 * such, in the compiler's vector types: the same steps as in floats_impl.h, on all lanes.
 *
 * What the compiler does badly is written for each instruction set, in the file that includes this:
 * load_f16() and store_f16(), and the same for lanes of whole numbers that are words or bytes in
 * memory. A value to store fits.
 */
#include "floats_impl.h"

typedef float wide __attribute__((vector_size(4 * WIDE_LANES)));
typedef uint32_t wide_bits __attribute__((vector_size(4 * WIDE_LANES)));
typedef int32_t wide_signed __attribute__((vector_size(4 * WIDE_LANES)));

static inline wide load_f16(const void *from);
static inline void store_f16(void *to, wide value);
static inline wide_bits load_words(const void *from);
static inline void store_words(void *to, wide_bits value);
static inline wide_bits load_bytes(const void *from);
static inline void store_bytes(void *to, wide_bits value);

/* Of lanes where @mask has all bits, or none. */
static inline wide_bits select_lanes(wide_signed mask, wide_bits yes, wide_bits no)
{
    return (yes & (wide_bits)mask) | (no & ~(wide_bits)mask);
}

/* Magnitudes have no sign, and processors compare signed numbers more easily. */
static inline wide_signed at_least(wide_bits magnitude, uint32_t limit)
{
    return (wide_signed)magnitude > (int32_t)(limit - 1);
}

static inline wide_bits widen_lanes(struct narrow_format format, wide_bits magnitude)
{
    const uint32_t rebias = (127U - format.bias) << 23;
    wide_bits normal = (magnitude << (23U - format.fraction)) + rebias;
    wide_bits subnormal = (wide_bits)((wide)(normal + (1U << 23)) - float_of(rebias + (1U << 23)));
    return select_lanes(at_least(magnitude, 1U << format.fraction), normal, subnormal);
}

static inline wide_bits narrow_lanes(struct narrow_format format, wide_bits magnitude)
{
    const uint32_t shift = 23U - format.fraction, rebias = 127U - format.bias;
    const uint32_t anchor = (rebias + shift + 1U) << 23;
    wide_bits normal =
        (magnitude + (((1U << (shift - 1)) - 1) - (rebias << 23)) + ((magnitude >> shift) & 1U)) >>
        shift;
    wide_bits subnormal = (wide_bits)((wide)magnitude + float_of(anchor)) - anchor;
    wide_bits narrow = select_lanes(at_least(magnitude, (rebias + 1U) << 23), normal, subnormal);
    const uint32_t beyond = (format.infinity << shift) + (rebias << 23);
    wide_bits infinity = (wide_bits){0} + format.infinity;
    return select_lanes(at_least(magnitude, beyond), infinity, narrow);
}

static inline wide load_f32(const void *from)
{
    wide value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store_f32(void *to, wide value)
{
    memcpy(to, &value, sizeof value);
}

static inline wide load_bf16(const void *from)
{
    return (wide)(load_words(from) << 16);
}

static inline void store_bf16(void *to, wide value)
{
    wide_bits bits = (wide_bits)value;
    wide_bits rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
    store_words(to, select_lanes(value != value, bits | 0x400000U, rounded) >> 16);
}

static inline wide load_e4m3(const void *from)
{
    wide_bits bits = load_bytes(from), magnitude = bits & 0x7fU;
    wide_bits nan = (wide_bits){0} + 0x7fc00000U;
    wide_bits value =
        select_lanes(at_least(magnitude, e4m3.nan), nan, widen_lanes(e4m3, magnitude));
    return (wide)(value | (bits & 0x80U) << 24);
}

static inline void store_e4m3(void *to, wide value)
{
    wide_bits bits = (wide_bits)value, sign = bits & 0x80000000U;
    store_bytes(to, narrow_lanes(e4m3, bits ^ sign) | sign >> 24);
}

static inline wide load_e5m2(const void *from)
{
    wide_bits bits = load_bytes(from), magnitude = bits & 0x7fU;
    wide_bits special = (magnitude << 21) + (224U << 23);
    wide_bits value =
        select_lanes(at_least(magnitude, e5m2.infinity), special, widen_lanes(e5m2, magnitude));
    return (wide)(value | (bits & 0x80U) << 24);
}

static inline void store_e5m2(void *to, wide value)
{
    wide_bits bits = (wide_bits)value, sign = bits & 0x80000000U, nan = (wide_bits){0} + e5m2.nan;
    wide_bits narrow = select_lanes(value != value, nan, narrow_lanes(e5m2, bits ^ sign));
    store_bytes(to, narrow | sign >> 24);
}

/*
 * Two vectors of bfloat16, the even elements and the odd ones: nothing has to cross lanes. What is
 * stored is the sum or product of two bfloat16: such a NaN has no bits to be rounded off.
 */
static inline wide_bits load_pairs(const void *from)
{
    wide_bits pairs;
    memcpy(&pairs, from, sizeof pairs);
    return pairs;
}

static inline void store_pairs_bf16(void *to, wide even_value, wide odd_value)
{
    wide_bits even = (wide_bits)even_value, odd = (wide_bits)odd_value;
    even = (even + 0x7fffU + ((even >> 16) & 1U)) >> 16;
    odd = (odd + 0x7fffU + ((odd >> 16) & 1U)) & 0xffff0000U;
    wide_bits pairs = even | odd;
    memcpy(to, &pairs, sizeof pairs);
}

static inline void wide_sum_bf16(void *to, const void *a, const void *b)
{
    wide_bits x = load_pairs(a), y = load_pairs(b);
    store_pairs_bf16(to, (wide)(x << 16) + (wide)(y << 16),
                     (wide)(x & 0xffff0000U) + (wide)(y & 0xffff0000U));
}

static inline void wide_product_bf16(void *to, const void *a, const void *b)
{
    wide_bits x = load_pairs(a), y = load_pairs(b);
    store_pairs_bf16(to, (wide)(x << 16) * (wide)(y << 16),
                     (wide)(x & 0xffff0000U) * (wide)(y & 0xffff0000U));
}
