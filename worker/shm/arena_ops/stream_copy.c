/*
 * stream_copy.c - copies with stores that bypass the caches. Pure.
 */
#include "stream_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* Every x86-64 processor has these stores. Returns how many bytes it has copied, from an aligned
 * @to on. */
static size_t stream(uint8_t *to, const uint8_t *from, size_t len)
{
    enum { LINE = 64 };
    size_t done = 0;
    for (; len - done >= LINE; done += LINE) {
        const __m128i *in = (const __m128i *)(const void *)(from + done);
        __m128i *out = (__m128i *)(void *)(to + done);
        __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
        __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    if (done > 0)
        _mm_sfence();
    return done;
}
#else
static size_t stream(uint8_t *to, const uint8_t *from, size_t len)
{
    memcpy(to, from, len);
    return len;
}
#endif

void ddpi_stream_copy(void *to_at, const void *from_at, size_t len)
{
    uint8_t *to = to_at;
    const uint8_t *from = from_at;
    size_t head = (64 - (uintptr_t)to % 64) % 64;
    if (head > len)
        head = len;
    memcpy(to, from, head);
    size_t done = head + stream(to + head, from + head, len - head);
    memcpy(to + done, from + done, len - done);
}
