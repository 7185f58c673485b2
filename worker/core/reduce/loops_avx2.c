/*
 * loops_avx2.c - the loops for x86-64 with AVX2 and F16C. Pure.
 */
#include "loops.h"

#ifdef __x86_64__
#include "target_impl.h"
DDPI_TARGET("avx2,f16c")
#include <immintrin.h>

#define WIDE_LANES 8
#include "wide_impl.h"

static inline wide load_f16(const void *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
}

static inline void store_f16(void *to, wide value)
{
    _mm_storeu_si128(to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

static inline wide_bits load_words(const void *from)
{
    return (wide_bits)_mm256_cvtepu16_epi32(_mm_loadu_si128(from));
}

static inline __m128i words_of(wide_bits value)
{
    __m128i low = _mm256_castsi256_si128((__m256i)value);
    return _mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)value, 1));
}

static inline void store_words(void *to, wide_bits value)
{
    _mm_storeu_si128(to, words_of(value));
}

static inline wide_bits load_bytes(const void *from)
{
    return (wide_bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64(from));
}

static inline void store_bytes(void *to, wide_bits value)
{
    __m128i words = words_of(value);
    _mm_storel_epi64(to, _mm_packus_epi16(words, words));
}

#define DDPI_LOOPS      ddpi_loops_avx2
#define DDPI_LOOPS_NAME "avx2"
#include "loops_impl.h"
DDPI_TARGET_END
#endif
