/*
 * vouching.h - for whom proven agents vouch: how many of their connections are open from each
 * address, for each job or for all. Pure; it owns a few bytes for each of these.
 */
#ifndef DDPI_VOUCHING_H
#define DDPI_VOUCHING_H

#include "address.h"
#include "proof.h"
#include "table.h"

struct ddpi_vouching {
    struct ddpi_table hosts;
};

void ddpi_vouch_init(struct ddpi_vouching *vouching, const uint8_t seed[DDPI_SEED_SIZE]);
/* Whoever still counts is forgotten. */
void ddpi_vouch_finish(struct ddpi_vouching *vouching);

/* A proven agent has come from @address, and vouches there for @job, or for all ("", which also
 * stands for clients of no job); false, with nothing changed, for lack of memory. */
bool ddpi_vouch_add(struct ddpi_vouching *vouching, const struct ddpi_address *address,
                    const char *job);
/* One that had entered so has gone. */
void ddpi_vouch_remove(struct ddpi_vouching *vouching, const struct ddpi_address *address,
                       const char *job);

/* Whether one is there who vouches for the clients of @job. */
bool ddpi_vouch_covers(const struct ddpi_vouching *vouching, const struct ddpi_address *address,
                       const char *job);

#endif
