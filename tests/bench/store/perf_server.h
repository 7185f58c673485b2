/*
 * perf_server.h - the servers that ddp-bench measures: child processes that listen on a free port
 * of 127.0.0.1, and die with ddp-bench.
 */
#ifndef TESTS_BENCH_PERF_SERVER_H
#define TESTS_BENCH_PERF_SERVER_H

#include "perf.h"

struct perf_server {
    pid_t pid; /* 0: not started */
    uint16_t port;
};

/* Start ddprund. */
bool perf_server_start_ours(const struct perf *perf, struct perf_server *ret,
                            struct ddp_error *err);
/* Start redis-server, without files. */
bool perf_server_start_redis(const struct perf *perf, struct perf_server *ret,
                             struct ddp_error *err);

/* Start any process, with a pipe from its standard output. */
bool perf_server_spawn(const char *const *words, pid_t *ret_pid, int *ret_fd,
                       struct ddp_error *err);

/* Kill the server and wait for its end. Does nothing if it was not started. */
void perf_server_stop(struct perf_server *server);

#endif
