/*
 * perf_stats.h - figures of one contender: collect samples, ask for percentiles. Pure.
 */
#ifndef CMD_PERF_STATS_H
#define CMD_PERF_STATS_H

#include <stdbool.h>
#include <stddef.h>

struct perf_samples {
    double *values;
    size_t count;
    size_t size;
};

/* false when memory has run out. */
bool perf_add(struct perf_samples *samples, double value);

/* The @percent-th percentile (nearest rank; 50 = the median); 0 without samples. Sorts. */
double perf_percentile(struct perf_samples *samples, double percent);

void perf_samples_finish(struct perf_samples *samples);

#endif
