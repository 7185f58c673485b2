/*
 * vouching.h - for which TCPStore clients authenticated agents vouch: how many connections of
 * agents are open from each address, for each job or for all. Pure; owns a few bytes for each of
 * these.
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
/* Agents may still be counted. */
void ddpi_vouch_finish(struct ddpi_vouching *vouching);

/* An authenticated agent at @address vouches for the clients there of @job; "": of all jobs and of
 * none. False, with nothing changed, if memory is short. */
bool ddpi_vouch_add(struct ddpi_vouching *vouching, const struct ddpi_address *address,
                    const char *job);
/* It has disconnected. */
void ddpi_vouch_remove(struct ddpi_vouching *vouching, const struct ddpi_address *address,
                       const char *job);

/* Whether an agent at @address vouches for the clients of @job. */
bool ddpi_vouch_covers(const struct ddpi_vouching *vouching, const struct ddpi_address *address,
                       const char *job);

#endif
