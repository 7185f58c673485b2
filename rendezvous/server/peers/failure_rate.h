/*
 * failure_rate.h - how often connections from one address may end before they are admitted: a token
 * bucket for each address that has failed. Pure; the caller passes the time.
 *
 * Only a failure costs a token, so a burst of honest clients costs none. An address whose bucket is
 * empty is refused until time has refilled it. IPv6 addresses are distinguished by all their bits,
 * since the nodes of a cluster often differ in the last half only.
 */
#ifndef DDPI_FAILURE_RATE_H
#define DDPI_FAILURE_RATE_H

#include "address.h"
#include "list.h"
#include "table.h"

/* Beyond these, the address whose last failure is the oldest is evicted. */
enum { DDPI_FAILURE_RATE_ADDRESSES = 1024 };

struct ddpi_failure_rate {
    uint32_t per_second;
    uint32_t burst;          /* tokens in a full bucket */
    struct ddpi_table table; /* buckets that may not be full, by address */
    struct ddpi_list order;  /* the same, by the time of the last failure */
};

void ddpi_failure_rate_init(struct ddpi_failure_rate *rate, uint32_t per_second, uint32_t burst,
                            const uint8_t seed[DDPI_SEED_SIZE]);
void ddpi_failure_rate_finish(struct ddpi_failure_rate *rate);

/* Whether @address has a token left. */
bool ddpi_failure_rate_permits(const struct ddpi_failure_rate *rate,
                               const struct ddpi_address *address, uint64_t now_ms);

/* Take a token from it, if there is one. If memory is short, nothing happens. */
void ddpi_failure_rate_charge(struct ddpi_failure_rate *rate, const struct ddpi_address *address,
                              uint64_t now_ms);

#endif
