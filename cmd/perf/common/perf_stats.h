/*
 * perf_stats.h - the figures of one contender: samples and their percentiles. Pure.
 *
 * Samples are all kept; a histogram counts any number of them in fixed space.
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

/* false: out of memory. */
bool perf_add(struct perf_samples *samples, double value);

/* The @percent-th percentile by nearest rank (50: the median); 0: no samples. Sorts. */
double perf_percentile(struct perf_samples *samples, double percent);

void perf_samples_finish(struct perf_samples *samples);

/* Each octave is divided into 2^PERF_FINE_BITS = 64 classes of the same width. */
enum { PERF_FINE_BITS = 6, PERF_CLASSES = (64 - PERF_FINE_BITS + 1) << PERF_FINE_BITS };

struct perf_histogram {
    uint64_t total;
    uint64_t counts[PERF_CLASSES];
};

void perf_histogram_add(struct perf_histogram *histogram, uint64_t value);

/* Add the counts of @other. */
void perf_histogram_merge(struct perf_histogram *histogram, const struct perf_histogram *other);

/* As perf_percentile(); returns the middle of the class that has the percentile. */
double perf_histogram_percentile(const struct perf_histogram *histogram, double percent);

#endif
