/*
 * checksum.h - the 64-bit checksum of checkpoints: XXH64 of Yann Collet, with seed 0. It finds
 * damage, not forgery. Pure.
 */
#ifndef DDPI_CHECKSUM_H
#define DDPI_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { DDPI_CHECKSUM_BLOCK = 32 }; /* bytes */

struct ddpi_checksum {
    uint64_t lanes[4];
    uint64_t bytes; /* so far */
};

void ddpi_checksum_start(struct ddpi_checksum *sum);

/* Add @len bytes, a multiple of DDPI_CHECKSUM_BLOCK. */
void ddpi_checksum_add(struct ddpi_checksum *sum, const void *bytes, size_t len);

/* Add the last @len bytes, any number. Returns the checksum of all. */
uint64_t ddpi_checksum_end(struct ddpi_checksum *sum, const void *bytes, size_t len);

#endif
