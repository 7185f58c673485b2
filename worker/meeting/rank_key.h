/*
 * rank_key.h - by what the ranks of a world know each other: a key that their agents gave them.
 *
 * The descriptor that they inherit holds the key of a worker in a job and generation
 * (token_file.h). The key of the ranks follows from it, and is of no use to the store, nor the
 * other way round. Without one, ranks prove with a key that everybody can make: it shows only that
 * they have read each other's cards.
 */
#ifndef DDPI_RANK_KEY_H
#define DDPI_RANK_KEY_H

#include "proof.h"

struct ddpi_rank_key {
    bool given;
    uint8_t bytes[DDPI_KEY_SIZE];
};

/* The one that everybody can make. */
void ddpi_rank_key_none(struct ddpi_rank_key *ret);

/* From the descriptor @fd, which stays open, but no longer for programs that this process executes.
 * One that holds no key any more, as somebody on the way has closed it, leaves none. */
void ddpi_rank_key_read(int fd, struct ddpi_rank_key *ret);

/* One of which nobody else knows. */
void ddpi_rank_key_random(struct ddpi_rank_key *ret);

#endif
