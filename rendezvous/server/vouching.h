/*
 * vouching.h - for whom proven agents vouch: how many of their connections are open from each
 * address, for each job or for all. Pure; it owns a few bytes for each of these.
 */
#ifndef DDPI_VOUCHING_H
#define DDPI_VOUCHING_H

#include "address.h"
#include "proof.h"
#include "table.h"

struct ddpi_admission {
    struct ddpi_table hosts;
};

void ddpi_admission_init(struct ddpi_admission *admission, const uint8_t seed[DDPI_SEED_SIZE]);
/* Whoever still counts is forgotten. */
void ddpi_admission_finish(struct ddpi_admission *admission);

/* A proven agent has come from @address, and vouches there for @job, or for all ("", which also
 * stands for clients of no job); false, with nothing changed, for lack of memory. */
bool ddpi_admission_enter(struct ddpi_admission *admission, const struct ddpi_address *address,
                          const char *job);
/* One that had entered so has gone. */
void ddpi_admission_leave(struct ddpi_admission *admission, const struct ddpi_address *address,
                          const char *job);

/* Whether one is there who vouches for the clients of @job. */
bool ddpi_admission_vouched(const struct ddpi_admission *admission,
                            const struct ddpi_address *address, const char *job);

#endif
