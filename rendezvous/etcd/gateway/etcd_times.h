/*
 * etcd_times.h - how long etcd takes for requests: a histogram, and its text among the counters of
 * a store. Pure.
 */
#ifndef DDPI_ETCD_TIMES_H
#define DDPI_ETCD_TIMES_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { DDPI_ETCD_TIMES_BOUNDS = 12 };

struct ddpi_etcd_times {
    uint64_t counts[DDPI_ETCD_TIMES_BOUNDS + 1]; /* the last one: longer than all bounds */
    uint64_t sum_us;
    uint64_t failures;
};

/* A member has answered after @us. */
void ddpi_etcd_times_add(struct ddpi_etcd_times *times, uint64_t us);

/* Append lines "NAME NUMBER": etcd_request_us/BOUND is how many took at most so many microseconds,
 * etcd_request_us/inf all of them, etcd_request_us/sum what they took together; etcd_failures are
 * requests without an answer. False: no room, or no memory. */
bool ddpi_etcd_times_put(const struct ddpi_etcd_times *times, struct ddpi_buf *text);

#endif
