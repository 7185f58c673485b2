/*
 * siphash.h - the keyed hash of everything that peers choose, so that nobody can choose names that
 * all fall into one slot.
 */
#ifndef DDPI_SIPHASH_H
#define DDPI_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

enum { DDPI_SEED_SIZE = 16 };

/* SipHash-1-3 of @len bytes under the secret @seed. */
uint64_t ddpi_siphash(const uint8_t seed[DDPI_SEED_SIZE], const void *bytes, size_t len);

#endif
