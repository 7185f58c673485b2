/*
 * refusals.h - what the server refuses its peers: counted by kind, and logged at a bounded rate,
 * since peers can cause refusals as often as they like. Owns the counters.
 */
#ifndef DDPI_REFUSALS_H
#define DDPI_REFUSALS_H

#include "log.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* X(counter, log line for refusals that were not logged one by one) */
#define DDPI_REFUSAL_KINDS(X)                                                                      \
    X(refused, "refused %u more connections")                                                      \
    X(displaced, "closed %u more connections that were not authenticated yet")                     \
    X(throttled, "refused %u more connections from addresses that fail too often")                 \
    X(dismissed, "closed %u more connections for what their peers did")                            \
    X(denied, "denied %u more connections")                                                        \
    X(overloaded, "closed %u more connections because all together had reached --max-input-total") \
    X(limited, "refused %u more requests")

enum ddpi_refusal {
#define DDPI_REFUSAL(counter, line) REFUSAL_##counter,
    DDPI_REFUSAL_KINDS(DDPI_REFUSAL)
#undef DDPI_REFUSAL
        REFUSALS
};

struct ddpi_refusals {
    uv_loop_t *loop; /* the clock */
    const struct ddpi_log *log;
    uint64_t counts[REFUSALS];
    struct log_throttle {
        uint64_t since_ms;
        unsigned logged;
        unsigned unlogged;
    } throttles[REFUSALS];
};

/* Count one refusal; true: the caller may log it. */
bool ddpi_refusals_count(struct ddpi_refusals *refusals, enum ddpi_refusal kind);

/* Log how many refusals have not been logged. */
void ddpi_refusals_flush(struct ddpi_refusals *refusals);

#endif
