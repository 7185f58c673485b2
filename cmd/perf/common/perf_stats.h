/*
 * perf_stats.h - figures of one contender: collect samples, ask for percentiles. Pure.
 *
 * Samples are kept and sorted; a histogram takes any number of them in fixed space.
 */
#ifndef CMD_PERF_STATS_H
#define CMD_PERF_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* A power of two is cut into 2^PERF_FINE_BITS classes, each as wide as 1/64 of its values. */
enum { PERF_FINE_BITS = 6, PERF_CLASSES = (64 - PERF_FINE_BITS + 1) << PERF_FINE_BITS };

struct perf_histogram {
    uint64_t total;
    uint64_t counts[PERF_CLASSES];
};

void perf_histogram_add(struct perf_histogram *histogram, uint64_t value);

/* Add all that is in @other. */
void perf_histogram_merge(struct perf_histogram *histogram, const struct perf_histogram *other);

/* As above; the middle of the class in which it lies. */
double perf_histogram_percentile(const struct perf_histogram *histogram, double percent);

#endif
