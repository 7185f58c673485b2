/*
 * perf_crew.h - a contender of the store's benchmark, and its crew: connections to its server, with
 * prepared set and get requests.
 */
#ifndef TESTS_BENCH_PERF_CREW_H
#define TESTS_BENCH_PERF_CREW_H

#include "perf_load.h"
#include "perf_server.h"

struct perf_side {
    const char *name;
    const struct perf_wire *wire;
    bool (*start)(const struct perf *perf, struct perf_server *ret, struct ddp_error *err);
};

extern const struct perf_side perf_side_ours;
extern const struct perf_side perf_side_redis;

/* Set keys 0 to @keys - 1. */
bool perf_fill(const struct perf_side *side, const struct perf_server *server, uint64_t keys,
               struct ddp_error *err);

/* Get key 0 on each connection. The answers show that all earlier requests were processed. */
bool perf_confirm(struct perf_load *load, struct ddp_error *err);

enum { PERF_CREW_OPS = 2 }; /* PERF_SET and PERF_GET */

struct perf_crew {
    struct perf_load load;
    pid_t server;
    struct perf_script *scripts[PERF_CREW_OPS]; /* one for each connection */
    uint32_t connections;
};

struct perf_crew_shape {
    uint32_t connections;
    uint32_t each; /* requests in the script of a connection, which is sent repeatedly */
    uint64_t keys; /* how many keys to set; the scripts name as many of them as fit */
};

/* Set the keys, prepare the scripts, connect. On success and on failure the caller ends with
 * perf_crew_close(), which does nothing to a zeroed crew. */
bool perf_crew_open(struct perf_crew *crew, const struct perf_side *side,
                    const struct perf_server *server, const struct perf_crew_shape *shape,
                    struct ddp_error *err);
void perf_crew_close(struct perf_crew *crew);

struct perf_crew_figures {
    double rate;      /* requests per second */
    double server_us; /* processor time of the server per request */
};

bool perf_crew_run(struct perf_crew *crew, enum perf_op op, uint32_t in_flight,
                   uint64_t duration_ms, struct perf_histogram *latencies,
                   struct perf_crew_figures *ret, struct ddp_error *err);

#endif
