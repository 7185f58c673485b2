/*
 * rank_key.h - the key with which the ranks of a world prove themselves to each other.
 *
 * Ranks inherit a descriptor with the key of a worker in a job and generation (token_file.h). The
 * key of the ranks is derived from it; neither key gives the other one away. Without a descriptor,
 * ranks use a key that everyone can derive: it only shows that they have read each other's cards.
 */
#ifndef DDPI_RANK_KEY_H
#define DDPI_RANK_KEY_H

#include "proof.h"

struct ddpi_rank_key {
    bool given;
    uint8_t bytes[DDPI_KEY_SIZE];
};

/* The key that everyone can derive. */
void ddpi_rank_key_none(struct ddpi_rank_key *ret);

/* Derive the key from the descriptor @fd, which stays open but becomes close-on-exec. A descriptor
 * that holds no key, as another program has closed it, gives the key that everyone can derive. */
void ddpi_rank_key_read(int fd, struct ddpi_rank_key *ret);

/* A random key. */
void ddpi_rank_key_random(struct ddpi_rank_key *ret);

#endif
