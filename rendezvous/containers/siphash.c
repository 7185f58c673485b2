/*
 * siphash.c - SipHash with one compression and three finalisation rounds, after the paper by
 * Aumasson and Bernstein. Owns nothing, allocates nothing.
 */
#include "siphash.h"

#include <endian.h>
#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t load_le(const uint8_t *bytes, size_t len)
{
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static uint64_t rotl(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static inline void sip_round(struct state *s)
{
    s->v0 += s->v1;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v2 = rotl(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

uint64_t ddpi_siphash(const uint8_t seed[DDPI_SEED_SIZE], const void *bytes, size_t len)
{
    uint64_t k0 = load_le(seed, 8), k1 = load_le(seed + 8, 8);
    struct state s = {.v0 = k0 ^ UINT64_C(0x736f6d6570736575),
                      .v1 = k1 ^ UINT64_C(0x646f72616e646f6d),
                      .v2 = k0 ^ UINT64_C(0x6c7967656e657261),
                      .v3 = k1 ^ UINT64_C(0x7465646279746573)};
    const uint8_t *at = bytes;
    size_t left = len;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        absorb(&s, le64toh(word));
    }
    absorb(&s, load_le(at, left) | (uint64_t)len << 56);
    s.v2 ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
