/*
 * plain_auth.c - proofs and seals of ranks without cryptography, for a GPU machine that has no
 * libsodium: the same shape, made of a checksum. It keeps mistakes apart and no attacker out. All
 * ranks of a run there are one user's, and there is nobody else.
 */
#include "error.h"
#include "proof.h"
#include "token_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const uint64_t sum_begin = UINT64_C(14695981039346656037);

/* FNV-1a. */
static uint64_t sum_of(uint64_t sum, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ at[i]) * UINT64_C(1099511628211);
    return sum;
}

static void spread(uint64_t sum, uint8_t *ret, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum = sum_of(sum, &i, sizeof i);
        ret[i] = (uint8_t)(sum >> 32);
    }
}

int sodium_memcmp(const void *a, const void *b, size_t len)
{
    return memcmp(a, b, len) == 0 ? 0 : -1;
}

void ddpi_hkdf_extract(const void *salt, size_t salt_len, const void *secret, size_t secret_len,
                       uint8_t ret_key[DDPI_KEY_SIZE])
{
    spread(sum_of(sum_of(sum_begin, salt, salt_len), secret, secret_len), ret_key, DDPI_KEY_SIZE);
}

void ddpi_hkdf_expand(const uint8_t key[DDPI_KEY_SIZE], const void *info, size_t info_len,
                      uint8_t *ret, size_t len)
{
    spread(sum_of(sum_of(sum_begin, key, DDPI_KEY_SIZE), info, info_len), ret, len);
}

void ddpi_wipe(void *secret, size_t len)
{
    explicit_bzero(secret, len);
}

void ddpi_token_random(void *bytes, size_t len)
{
    for (uint8_t *at = bytes; len > 0;) {
        ssize_t count = getrandom(at, len, 0);
        if (count < 0)
            continue; /* a signal */
        at += count;
        len -= (size_t)count;
    }
}

/* tests/gpu/ddprun.py hands out no keys. */
ddp_status ddpi_token_read_fd(int fd, struct ddpi_credential *ret, struct ddp_error *err)
{
    (void)ret;
    return ddpi_error_set(err, DDP_E_DENIED, "no key is read from descriptor %d here", fd);
}

void ddpi_handshake_begin(struct ddpi_handshake *handshake)
{
    handshake->transcript.sum = sum_begin;
}

void ddpi_handshake_add(struct ddpi_handshake *handshake, const void *bytes, size_t len)
{
    handshake->transcript.sum =
        sum_of(sum_of(handshake->transcript.sum, &len, sizeof len), bytes, len);
}

static uint64_t sum_of_side(const struct ddpi_handshake *handshake, unsigned side)
{
    uint64_t sum = sum_of(handshake->transcript.sum, handshake->key, DDPI_KEY_SIZE);
    return sum_of(sum, &side, sizeof side);
}

void ddpi_handshake_prove(const struct ddpi_handshake *handshake, enum ddpi_side side,
                          uint8_t ret_proof[DDPI_PROOF_SIZE])
{
    spread(sum_of_side(handshake, side), ret_proof, DDPI_PROOF_SIZE);
}

bool ddpi_handshake_check(const struct ddpi_handshake *handshake, enum ddpi_side side,
                          const uint8_t proof[DDPI_PROOF_SIZE])
{
    uint8_t expected[DDPI_PROOF_SIZE];
    ddpi_handshake_prove(handshake, side, expected);
    return memcmp(expected, proof, sizeof expected) == 0;
}

void ddpi_seals_begin(struct ddpi_seals *seals, const struct ddpi_handshake *handshake,
                      enum ddpi_side ours)
{
    struct ddpi_seal *const of_side[] = {ours == DDPI_SIDE_CLIENT ? &seals->out : &seals->in,
                                         ours == DDPI_SIDE_CLIENT ? &seals->in : &seals->out};
    for (unsigned side = 0; side < 2; side++) {
        spread(sum_of_side(handshake, 2 + side), (uint8_t *)of_side[side]->keys,
               sizeof of_side[side]->keys);
        of_side[side]->sequence = 0;
    }
    seals->on = true;
}

void ddpi_seal_make(const struct ddpi_seal *seal, uint64_t sequence, const void *frame, size_t len,
                    uint8_t ret[DDPI_SEAL_SIZE])
{
    uint64_t sum = sum_of(sum_begin, seal->keys, sizeof seal->keys);
    sum = sum_of(sum_of(sum, &sequence, sizeof sequence), frame, len);
    spread(sum, ret, DDPI_SEAL_SIZE);
}
