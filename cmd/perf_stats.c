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

double perf_percentile(struct perf_samples *samples, double percent)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->values, samples->count, sizeof *samples->values, ascending);
    double rank = percent / 100 * (double)samples->count;
    size_t at = (size_t)rank;
    if ((double)at < rank || at == 0)
        at++; /* nearest rank counts from one and rounds up */
    return samples->values[(at < samples->count ? at : samples->count) - 1];
}

void perf_samples_finish(struct perf_samples *samples)
{
    ddpi_free(samples->values);
    *samples = (struct perf_samples){0};
}
