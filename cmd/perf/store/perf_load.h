/*
 * perf_load.h - a load generator: one thread, one epoll, many connections that keep a number of
 * requests in flight each. Any answer that says no ends the measure: figures of failures are none.
 */
#ifndef CMD_PERF_LOAD_H
#define CMD_PERF_LOAD_H

#include "perf_stats.h"
#include "perf_wire.h"

struct perf_conn;
struct perf_play;

struct perf_load {
    const struct perf_wire *wire;
    int epoll_fd;
    struct perf_conn *conns;
    uint32_t count;
    uint8_t *scratch; /* replies are received here; no local array, which is zeroed in each call */
    uint64_t outstanding; /* answers that are still to come, on all connections */

    /* While perf_load_play() runs. */
    const struct perf_play *play;
    uint64_t *stamps; /* when each request in flight was sent: in_flight for each connection */
    uint64_t end_ns;
    uint64_t answered;
};

struct perf_play {
    const struct perf_script *scripts; /* one for each connection */
    bool shared;                       /* no, a single one for all of them */
    uint32_t in_flight;
    uint64_t duration_ns;             /* 0: each script once; else round and round */
    struct perf_histogram *latencies; /* of each request, nanoseconds; or NULL */
};

struct perf_result {
    uint64_t requests;
    double elapsed_us; /* from before the first request until after the last answer */
};

/* Connect to 127.0.0.1 and exchange greetings. Whether it fails or not, perf_load_close() ends
 * what was begun, and does nothing to a zeroed one. */
bool perf_load_open(struct perf_load *load, const struct perf_wire *wire, uint16_t port,
                    uint32_t count, double *ret_elapsed_us, struct ddp_error *err);
void perf_load_close(struct perf_load *load);

/* Answers to earlier perf_load_post() may stay away meanwhile, but must not come. */
bool perf_load_play(struct perf_load *load, const struct perf_play *play, struct perf_result *ret,
                    struct ddp_error *err);

/* Each connection sends its whole script of @play at once; the answers are left for later. */
bool perf_load_post(struct perf_load *load, const struct perf_play *play, struct ddp_error *err);
/* Until all of them have come. */
bool perf_load_await(struct perf_load *load, struct ddp_error *err);

#endif
