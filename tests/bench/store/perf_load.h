/*
 * perf_load.h - a load generator: one thread, one epoll, many connections, each with a number of
 * requests in flight. A negative answer ends the measurement with an error.
 */
#ifndef TESTS_BENCH_PERF_LOAD_H
#define TESTS_BENCH_PERF_LOAD_H

#include "perf_stats.h"
#include "perf_wire.h"

struct perf_conn;
struct perf_play;

struct perf_load {
    const struct perf_wire *wire;
    int epoll_fd;
    struct perf_conn *conns;
    uint32_t count;
    uint8_t *scratch; /* for received replies; the compiler would zero a local array in each call */
    uint64_t outstanding; /* answers not yet received, on all connections */

    /* Used while perf_load_play() runs. */
    const struct perf_play *play;
    uint64_t *stamps; /* when each request in flight was sent: in_flight for each connection */
    uint64_t end_ns;
    uint64_t answered;
};

struct perf_play {
    const struct perf_script *scripts; /* one for each connection */
    bool shared;                       /* a single script for all connections instead */
    uint32_t in_flight;
    uint64_t duration_ns;             /* 0: send each script once; else repeat it for this long */
    struct perf_histogram *latencies; /* of requests, in nanoseconds; or NULL */
};

struct perf_result {
    uint64_t requests;
    double elapsed_us; /* from just before the first request to just after the last answer */
};

/* Connect to 127.0.0.1 and exchange greetings. On success and on failure the caller ends with
 * perf_load_close(), which does nothing to a zeroed load. */
bool perf_load_open(struct perf_load *load, const struct perf_wire *wire, uint16_t port,
                    uint32_t count, double *ret_elapsed_us, struct ddp_error *err);
void perf_load_close(struct perf_load *load);

/* Answers to an earlier perf_load_post() must not arrive while this runs. */
bool perf_load_play(struct perf_load *load, const struct perf_play *play, struct perf_result *ret,
                    struct ddp_error *err);

/* Send the whole script of @play on each connection; do not wait for answers. */
bool perf_load_post(struct perf_load *load, const struct perf_play *play, struct ddp_error *err);
/* Wait for all answers. */
bool perf_load_await(struct perf_load *load, struct ddp_error *err);

#endif
