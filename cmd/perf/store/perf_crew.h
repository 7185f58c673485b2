/*
 * perf_crew.h - a contender of the store's benchmark, and a crew: connections to its server with
 * set and get requests that are ready to be sent.
 */
#ifndef CMD_PERF_CREW_H
#define CMD_PERF_CREW_H

#include "perf_load.h"
#include "perf_server.h"

struct perf_side {
    const char *name;
    const struct perf_wire *wire;
    bool (*start)(const struct perf *perf, struct perf_server *ret, struct ddp_error *err);
};

extern const struct perf_side perf_side_ours;
extern const struct perf_side perf_side_redis;

/* Set the keys number 0 to @keys - 1. */
bool perf_fill(const struct perf_side *side, const struct perf_server *server, uint64_t keys,
               struct ddp_error *err);

/* Each connection gets key 0: once the answers are there, the server has taken all that was sent
 * before. */
bool perf_confirm(struct perf_load *load, struct ddp_error *err);

enum { PERF_CREW_OPS = 2 }; /* PERF_SET and PERF_GET */

struct perf_crew {
    struct perf_load load;
    pid_t server;
    struct perf_script *scripts[PERF_CREW_OPS]; /* of each connection */
    uint32_t connections;
};

struct perf_crew_shape {
    uint32_t connections;
    uint32_t each; /* requests in each connection's script; it is sent round and round */
    uint64_t keys; /* all are set; the scripts name as many of them as they can */
};

/* Set the keys, prepare, connect. Whether it fails or not,
 * perf_crew_close() ends what was begun, and does nothing to a zeroed crew. */
bool perf_crew_open(struct perf_crew *crew, const struct perf_side *side,
                    const struct perf_server *server, const struct perf_crew_shape *shape,
                    struct ddp_error *err);
void perf_crew_close(struct perf_crew *crew);

struct perf_crew_figures {
    double rate;      /* requests per second */
    double server_us; /* the server's processor time for one request */
};

bool perf_crew_run(struct perf_crew *crew, enum perf_op op, uint32_t in_flight,
                   uint64_t duration_ms, struct perf_histogram *latencies,
                   struct perf_crew_figures *ret, struct ddp_error *err);

#endif
