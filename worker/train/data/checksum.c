/*
 * checksum.c - XXH64, from its specification (xxhash_spec.md). Owns nothing.
 */
#include "checksum.h"

#include <endian.h>
#include <string.h>

enum { LANES = 4, WORD = 8, HALF = 4 };

static const uint64_t prime1 = 0x9E3779B185EBCA87U, prime2 = 0xC2B2AE3D27D4EB4FU,
                      prime3 = 0x165667B19E3779F9U, prime4 = 0x85EBCA77C2B2AE63U,
                      prime5 = 0x27D4EB2F165667C5U;

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * prime2, 31) * prime1;
}

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return le64toh(word);
}

static uint64_t half_at(const uint8_t *bytes)
{
    uint32_t half;
    memcpy(&half, bytes, sizeof half);
    return le32toh(half);
}

void ddpi_checksum_start(struct ddpi_checksum *sum)
{
    *sum = (struct ddpi_checksum){.lanes = {prime1 + prime2, prime2, 0, 0 - prime1}};
}

void ddpi_checksum_add(struct ddpi_checksum *sum, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    for (size_t done = 0; done < len; done += DDPI_CHECKSUM_BLOCK)
        for (int i = 0; i < LANES; i++, at += WORD)
            sum->lanes[i] = mix(sum->lanes[i], word_at(at));
    sum->bytes += len;
}

static uint64_t join_lanes(const struct ddpi_checksum *sum)
{
    const uint64_t *lanes = sum->lanes;
    if (sum->bytes < DDPI_CHECKSUM_BLOCK)
        return prime5;
    uint64_t joined =
        rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (int i = 0; i < LANES; i++)
        joined = (joined ^ mix(0, lanes[i])) * prime1 + prime4;
    return joined;
}

uint64_t ddpi_checksum_end(struct ddpi_checksum *sum, const void *bytes, size_t len)
{
    size_t blocks = len - len % DDPI_CHECKSUM_BLOCK;
    const uint8_t *at = bytes;
    if (blocks > 0)
        ddpi_checksum_add(sum, at, blocks);
    uint64_t all = join_lanes(sum) + sum->bytes + (len - blocks);
    size_t left = len - blocks;
    for (at = left > 0 ? at + blocks : at; left >= WORD; at += WORD, left -= WORD)
        all = rotate(all ^ mix(0, word_at(at)), 27) * prime1 + prime4;
    if (left >= HALF) {
        all = rotate(all ^ half_at(at) * prime1, 23) * prime2 + prime3;
        at += HALF;
        left -= HALF;
    }
    for (; left > 0; at++, left--)
        all = rotate(all ^ *at * prime5, 11) * prime1;
    all = (all ^ all >> 33) * prime2;
    all = (all ^ all >> 29) * prime3;
    return all ^ all >> 32;
}
