/*
 * loops_avx512.c - the loops for x86-64 with AVX-512 F, BW, DQ and VL. Pure.
 */
#include "loops.h"

#ifdef __x86_64__
#include "target_impl.h"
DDPI_TARGET("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#include <immintrin.h>

#define WIDE_LANES 16
#include "wide_impl.h"

static inline wide load_f16(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

static inline void store_f16(void *to, wide value)
{
    _mm256_storeu_si256(to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

static inline wide_bits load_words(const void *from)
{
    return (wide_bits)_mm512_cvtepu16_epi32(_mm256_loadu_si256(from));
}

static inline void store_words(void *to, wide_bits value)
{
    _mm256_storeu_si256(to, _mm512_cvtepi32_epi16((__m512i)value));
}

static inline wide_bits load_bytes(const void *from)
{
    return (wide_bits)_mm512_cvtepu8_epi32(_mm_loadu_si128(from));
}

static inline void store_bytes(void *to, wide_bits value)
{
    _mm_storeu_si128(to, _mm512_cvtepi32_epi8((__m512i)value));
}

#define DDPI_LOOPS      ddpi_loops_avx512
#define DDPI_LOOPS_NAME "avx512"
#include "loops_impl.h"
DDPI_TARGET_END
#endif
