/*
 * loops_neon.c - the loops for 64-bit Arm, which always has NEON. Pure.
 */
#include "loops.h"

#ifdef __aarch64__
#include <arm_neon.h>

#define WIDE_LANES 4
#include "wide_impl.h"

static inline wide load_f16(const void *from)
{
    float16x4_t half;
    memcpy(&half, from, sizeof half);
    return (wide)vcvt_f32_f16(half);
}

static inline void store_f16(void *to, wide value)
{
    float16x4_t half = vcvt_f16_f32((float32x4_t)value);
    memcpy(to, &half, sizeof half);
}

static inline wide_bits load_words(const void *from)
{
    uint16x4_t words;
    memcpy(&words, from, sizeof words);
    return (wide_bits)vmovl_u16(words);
}

static inline void store_words(void *to, wide_bits value)
{
    uint16x4_t words = vmovn_u32((uint32x4_t)value);
    memcpy(to, &words, sizeof words);
}

static inline wide_bits load_bytes(const void *from)
{
    uint32_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    uint8x8_t lanes = vcreate_u8(bytes);
    return (wide_bits)vmovl_u16(vget_low_u16(vmovl_u8(lanes)));
}

static inline void store_bytes(void *to, wide_bits value)
{
    uint16x4_t words = vmovn_u32((uint32x4_t)value);
    uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    memcpy(to, &bytes, 4);
}

#define DDPI_LOOPS      ddpi_loops_neon
#define DDPI_LOOPS_NAME "neon"
#include "loops_impl.h"
#endif
