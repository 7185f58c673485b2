/*
 * perf_stats.c - samples and percentiles. Owns the samples; prints nothing.
 */
#include "perf_stats.h"

#include "mem.h"

#include <stdlib.h>

bool perf_add(struct perf_samples *samples, double value)
{
    if (samples->count == samples->size) {
        size_t size = samples->size > 0 ? samples->size * 2 : 32;
        double *values = ddpi_realloc(samples->values, size, sizeof *values);
        if (values == NULL)
            return false;
        samples->values = values;
        samples->size = size;
    }
    samples->values[samples->count++] = value;
    return true;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The rank counts from 1 and is rounded up. */
static uint64_t nearest_rank(uint64_t count, double percent)
{
    double rank = percent / 100 * (double)count;
    uint64_t at = (uint64_t)rank;
    if ((double)at < rank || at == 0)
        at++;
    return at < count ? at : count;
}

double perf_percentile(struct perf_samples *samples, double percent)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->values, samples->count, sizeof *samples->values, ascending);
    return samples->values[nearest_rank(samples->count, percent) - 1];
}

void perf_samples_finish(struct perf_samples *samples)
{
    ddpi_free(samples->values);
    *samples = (struct perf_samples){0};
}

/* Each value below 2^PERF_FINE_BITS has its own class; for others the leading bits choose one. */
static size_t class_of(uint64_t value)
{
    if (value >> PERF_FINE_BITS == 0)
        return (size_t)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - PERF_FINE_BITS;
    return ((size_t)shift << PERF_FINE_BITS) + (size_t)(value >> shift);
}

static double middle_of(size_t class)
{
    if (class < 2u << PERF_FINE_BITS) /* the classes of the first two octaves hold one value each */
        return (double)class;
    unsigned shift = (unsigned)(class >> PERF_FINE_BITS) - 1;
    uint64_t leading = class - ((size_t)shift << PERF_FINE_BITS);
    return (double)(leading << shift) + (double)(((uint64_t)1 << shift) - 1) / 2;
}

void perf_histogram_add(struct perf_histogram *histogram, uint64_t value)
{
    histogram->counts[class_of(value)]++;
    histogram->total++;
}

void perf_histogram_merge(struct perf_histogram *histogram, const struct perf_histogram *other)
{
    for (size_t class = 0; class < PERF_CLASSES; class ++)
        histogram->counts[class] += other->counts[class];
    histogram->total += other->total;
}

double perf_histogram_percentile(const struct perf_histogram *histogram, double percent)
{
    if (histogram->total == 0)
        return 0;
    uint64_t rank = nearest_rank(histogram->total, percent);
    size_t class = 0;
    for (uint64_t seen = histogram->counts[0]; seen < rank; seen += histogram->counts[class])
        class ++;
    return middle_of(class);
}
