/*
 * perf.h - what the benchmarks of ddp-perf have in common: options, and where figures go.
 */
#ifndef CMD_PERF_H
#define CMD_PERF_H

#include "options.h"
#include "perf_stats.h"

#include <stdint.h>
#include <stdio.h>

struct perf_options {
    const char *json; /* file for JSON lines; NULL = none */
    const char *ddprun;
    uint32_t runs;
    uint32_t slow_runs; /* for contenders that need seconds */
    bool help;
};

struct perf {
    struct perf_options options;
    FILE *json; /* or NULL */
    char ddprun[4096];
    char empty[4096]; /* a C program whose main() returns 0 */
};

/* One benchmark: returns false, with the sentence in @err, if it could not measure. */
typedef bool (*perf_verb)(struct perf *perf, struct ddp_error *err);

bool perf_launch(struct perf *perf, struct ddp_error *err);

/* Microseconds on the monotonic clock. */
double perf_now_us(void);

#endif
