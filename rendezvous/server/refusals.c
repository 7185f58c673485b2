/*
 * refusals.c - counts refusals and bounds the rate of their log lines.
 */
#include "refusals.h"

enum { LINES = 10, LINES_MS = 10000 }; /* lines of each kind in so many milliseconds */

static void flush_kind(struct ddpi_refusals *refusals, enum ddpi_refusal kind)
{
    struct log_throttle *throttle = &refusals->throttles[kind];
    if (throttle->unlogged == 0)
        return;
    switch (kind) {
#define LINE(counter, line)                                               \
    case REFUSAL_##counter:                                               \
        ddpi_log(refusals->log, DDPI_LOG_WARN, line, throttle->unlogged); \
        break;
        DDPI_REFUSAL_KINDS(LINE)
#undef LINE
    case REFUSALS:
        break;
    }
    throttle->unlogged = 0;
}

bool ddpi_refusals_count(struct ddpi_refusals *refusals, enum ddpi_refusal kind)
{
    struct log_throttle *throttle = &refusals->throttles[kind];
    uint64_t now_ms = uv_now(refusals->loop);
    refusals->counts[kind]++;
    if (throttle->logged == 0 || now_ms - throttle->since_ms >= LINES_MS) {
        flush_kind(refusals, kind);
        *throttle = (struct log_throttle){.since_ms = now_ms};
    }
    bool room = throttle->logged < LINES;
    throttle->logged += room;
    throttle->unlogged += !room;
    return room;
}

void ddpi_refusals_flush(struct ddpi_refusals *refusals)
{
    for (unsigned kind = 0; kind < REFUSALS; kind++)
        flush_kind(refusals, (enum ddpi_refusal)kind);
}
