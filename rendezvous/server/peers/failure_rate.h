/*
 * failure_rate.h - how often connections from one address may end before their peers have been
 * admitted: a bucket of tokens for each address of which one has. Pure, on the caller's time.
 *
 * Only a failure costs a token, so that a burst of honest clients costs none. Who has spent all is
 * turned away until time has brought some back. Whole addresses are told apart, also those of
 * IPv6, as the nodes of a cluster often share all but the last half.
 */
#ifndef DDPI_FAILURE_RATE_H
#define DDPI_FAILURE_RATE_H

#include "address.h"
#include "list.h"
#include "table.h"

/* The address that has not failed for longest gives way to one more. */
enum { DDPI_FAILURE_RATE_ADDRESSES = 1024 };

struct ddpi_failure_rate {
    uint32_t per_second;
    uint32_t burst;          /* tokens in a full bucket */
    struct ddpi_table table; /* of those that are not full, by address */
    struct ddpi_list order;  /* the same: who has failed last comes last */
};

void ddpi_failure_rate_init(struct ddpi_failure_rate *rate, uint32_t per_second, uint32_t burst,
                            const uint8_t seed[DDPI_SEED_SIZE]);
void ddpi_failure_rate_finish(struct ddpi_failure_rate *rate);

/* Whether @address has a token left. */
bool ddpi_failure_rate_permits(const struct ddpi_failure_rate *rate,
                               const struct ddpi_address *address, uint64_t now_ms);

/* Take one from it, if there is one. Without memory for it, nothing happens. */
void ddpi_failure_rate_charge(struct ddpi_failure_rate *rate, const struct ddpi_address *address,
                              uint64_t now_ms);

#endif
