/*
 * admission.h - for whom proven agents vouch: how many of their connections are open from each
 * address. Pure; it owns a few bytes for each address from which there is one.
 */
#ifndef DDPI_ADMISSION_H
#define DDPI_ADMISSION_H

#include "address.h"
#include "table.h"

struct ddpi_admission {
    struct ddpi_table hosts;
};

void ddpi_admission_init(struct ddpi_admission *admission, const uint8_t seed[DDPI_SEED_SIZE]);
/* Whoever still counts is forgotten. */
void ddpi_admission_finish(struct ddpi_admission *admission);

/* A proven agent has come from @address; false, with nothing changed, for lack of memory. */
bool ddpi_admission_enter(struct ddpi_admission *admission, const struct ddpi_address *address);
/* One that had entered has gone. */
void ddpi_admission_leave(struct ddpi_admission *admission, const struct ddpi_address *address);

/* Whether one is there. */
bool ddpi_admission_vouched(const struct ddpi_admission *admission,
                            const struct ddpi_address *address);

#endif
