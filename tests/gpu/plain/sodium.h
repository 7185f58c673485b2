/*
 * sodium.h - in place of libsodium's header where that library cannot be had (gpu_build.py): what
 * rendezvous/auth/proof.h says of it, and the one function that the worker calls itself.
 */
#ifndef TESTS_GPU_PLAIN_SODIUM_H
#define TESTS_GPU_PLAIN_SODIUM_H

#include <stddef.h>
#include <stdint.h>

enum { crypto_shorthash_siphashx24_KEYBYTES = 16 };

typedef struct {
    uint64_t sum;
} crypto_hash_sha256_state;

int sodium_memcmp(const void *a, const void *b, size_t len);

#endif
