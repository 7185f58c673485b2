/*
 * floats_impl.h - the floats of 8 and 16 bits as float32 and back, in integer arithmetic without
 * branches, so that loops over them become vector code. To nearest even; a NaN stays a NaN.
 */
#ifndef DDPI_FLOATS_IMPL_H
#define DDPI_FLOATS_IMPL_H

#include <stdint.h>
#include <string.h>

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

/*
 * A format of a sign, exponent bits with @bias, and @fraction bits. binary32 has the bias 127 and
 * 23 fraction bits.
 */
struct narrow_format {
    uint32_t bias, fraction;
    uint32_t infinity; /* its magnitude bits; the first NaN, if there is none */
    uint32_t nan;
};

static const struct narrow_format binary16 = {15, 10, 0x7c00, 0x7e00};
static const struct narrow_format e5m2 = {15, 2, 0x7c, 0x7f};
static const struct narrow_format e4m3 = {7, 3, 0x7f, 0x7f};

/* @magnitude, which is less than infinity, as the bits of a float32. */
static inline uint32_t widen_finite(struct narrow_format format, uint32_t magnitude)
{
    const uint32_t rebias = (127U - format.bias) << 23;
    uint32_t normal = (magnitude << (23U - format.fraction)) + rebias;
    /* A subnormal is made the fraction of a normal number, whose leading one is then taken off. */
    float leading_one = float_of(rebias + (1U << 23));
    uint32_t subnormal = bits_of(float_of(normal + (1U << 23)) - leading_one);
    return select32(magnitude >> format.fraction == 0, subnormal, normal);
}

/* @magnitude of a float32 as the magnitude bits of @format. */
static inline uint32_t narrow_magnitude(struct narrow_format format, uint32_t magnitude)
{
    const uint32_t shift = 23U - format.fraction, rebias = 127U - format.bias;
    const uint32_t below_half = (1U << (shift - 1)) - 1;
    /* Ties to even: add just under half a unit, and the last kept bit. */
    uint32_t normal =
        (magnitude - (rebias << 23) + below_half + ((magnitude >> shift) & 1U)) >> shift;
    /* Adding a number whose unit is the smallest subnormal makes the adder round for us. */
    const uint32_t anchor = (rebias + shift + 1U) << 23;
    uint32_t subnormal = bits_of(float_of(magnitude) + float_of(anchor)) - anchor;
    uint32_t narrow = select32(magnitude < (rebias + 1U) << 23, subnormal, normal);
    const uint32_t beyond = (format.infinity << shift) + (rebias << 23);
    return select32(magnitude >= beyond, format.infinity, narrow);
}

static inline float half_to_float(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffU;
    uint32_t special = (magnitude << 13) + (224U << 23);
    uint32_t bits = select32(magnitude >= 0x7c00U, special, widen_finite(binary16, magnitude));
    return float_of(bits | (uint32_t)(half & 0x8000U) << 16);
}

static inline uint16_t float_to_half(float value)
{
    uint32_t sign = bits_of(value) & 0x80000000U;
    uint32_t magnitude = bits_of(value) ^ sign;
    uint32_t nan = binary16.nan | ((magnitude >> 13) & 0x3ffU);
    uint32_t half = select32(magnitude > 0x7f800000U, nan, narrow_magnitude(binary16, magnitude));
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

/* The upper half of a binary16. */
static inline float e5m2_to_float(uint8_t bits)
{
    return half_to_float((uint16_t)(bits << 8));
}

static inline uint8_t float_to_e5m2(float value)
{
    uint32_t sign = bits_of(value) & 0x80000000U;
    uint32_t magnitude = bits_of(value) ^ sign;
    uint32_t narrow = narrow_magnitude(e5m2, magnitude);
    return (uint8_t)(select32(magnitude > 0x7f800000U, e5m2.nan, narrow) | sign >> 24);
}

static inline float e4m3_to_float(uint8_t bits)
{
    uint32_t magnitude = bits & 0x7fU;
    uint32_t wide = select32(magnitude == e4m3.nan, 0x7fc00000U, widen_finite(e4m3, magnitude));
    return float_of(wide | (uint32_t)(bits & 0x80U) << 24);
}

/* There is no infinity: what is too large is as good as a NaN. */
static inline uint8_t float_to_e4m3(float value)
{
    uint32_t sign = bits_of(value) & 0x80000000U;
    return (uint8_t)(narrow_magnitude(e4m3, bits_of(value) ^ sign) | sign >> 24);
}

#endif
