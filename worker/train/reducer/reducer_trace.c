/*
 * reducer_trace.c - times of the last step, as numbers and as a Chrome trace (the "Trace Event
 * Format" of chrome://tracing and Perfetto). Owns the trace's file.
 */
#include "reducer.h"

#include "clock.h"
#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- numbers ---- */

/* In which at least one bucket was being reduced after @from_us. Buckets begin in their order. */
static uint64_t time_reducing(const struct ddp_reducer *reducer, uint64_t from_us)
{
    uint64_t sum = 0, until = from_us;
    for (uint32_t i = 0; i < reducer->plan.nbuckets; i++) {
        const struct ddpi_bucket *bucket = &reducer->buckets[i];
        uint64_t begin = bucket->begin_us > until ? bucket->begin_us : until;
        if (bucket->end_us <= begin)
            continue;
        sum += bucket->end_us - begin;
        until = bucket->end_us;
    }
    return sum;
}

static uint64_t bytes_of(const struct ddpi_bucket *bucket)
{
    return bucket->shown.count * ddp_dtype_size(bucket->shown.dtype);
}

/* Copy what a caller of an older or newer version has room for. */
static ddp_status copy_stats(const void *stats, size_t stats_size, void *ret, size_t room)
{
    if (room < sizeof(size_t))
        return DDP_E_INVALID;
    size_t size = room < stats_size ? room : stats_size;
    memcpy((char *)ret + sizeof(size_t), (const char *)stats + sizeof(size_t),
           size - sizeof(size_t));
    return DDP_OK;
}

ddp_status ddp_reducer_get_stats(const ddp_reducer *reducer, struct ddp_reducer_stats *ret_stats)
{
    if (reducer->state == DDPI_REDUCER_OPEN || reducer->state == DDPI_REDUCER_CLOSED)
        return DDP_E_INVALID;
    struct ddp_reducer_stats stats = {.steps = reducer->steps,
                                      .rebuilds = reducer->rebuilds,
                                      .buckets = reducer->plan.nbuckets,
                                      .step_us = reducer->step_end_us - reducer->step_begin_us,
                                      .reduce_us = time_reducing(reducer, 0),
                                      .exposed_us = time_reducing(reducer, reducer->finish_us)};
    for (uint32_t i = 0; i < reducer->plan.nbuckets; i++)
        stats.bytes += bytes_of(&reducer->buckets[i]);
    return copy_stats(&stats, sizeof stats, ret_stats, ret_stats->size);
}

static uint64_t since_begin(const struct ddp_reducer *reducer, uint64_t us)
{
    return us > reducer->step_begin_us ? us - reducer->step_begin_us : 0;
}

ddp_status ddp_reducer_get_bucket(const ddp_reducer *reducer, size_t number,
                                  struct ddp_bucket_stats *ret_stats, uint32_t *parameters,
                                  size_t nparameters)
{
    if (reducer->state == DDPI_REDUCER_OPEN || reducer->state == DDPI_REDUCER_CLOSED ||
        number >= reducer->plan.nbuckets)
        return DDP_E_INVALID;
    const struct ddpi_bucket *bucket = &reducer->buckets[number];
    struct ddp_bucket_stats stats = {.bytes = bytes_of(bucket),
                                     .gradients = bucket->shown.ngradients,
                                     .first_ready_us = since_begin(reducer, bucket->first_ready_us),
                                     .full_us = since_begin(reducer, bucket->full_us),
                                     .begin_us = since_begin(reducer, bucket->begin_us),
                                     .end_us = since_begin(reducer, bucket->end_us)};
    for (size_t i = 0; parameters != NULL && i < nparameters && i < stats.gradients; i++)
        parameters[i] = bucket->shown.parameters[i];
    return copy_stats(&stats, sizeof stats, ret_stats, ret_stats->size);
}

/* ---- the trace ---- */

ddp_status ddpi_trace_open(struct ddp_reducer *reducer, const char *path, struct ddp_error *err)
{
    reducer->trace = fopen(path, "we");
    if (reducer->trace == NULL)
        return ddpi_error_sys(err, errno, "cannot write the trace of rank %u to %s", reducer->rank,
                              path);
    reducer->trace_origin_us = ddpi_monotonic_us();
    fputs("[", reducer->trace);
    return DDP_OK;
}

/* One slice: @row is a line of the picture. */
static void write_slice(struct ddp_reducer *reducer, const char *name, uint32_t row,
                        uint64_t begin_us, uint64_t end_us, uint64_t bytes)
{
    if (end_us < begin_us || begin_us == 0)
        return;
    fprintf(reducer->trace,
            "%s\n{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %u, \"tid\": %u, \"ts\": %" PRIu64
            ", \"dur\": %" PRIu64 ", \"args\": {\"step\": %" PRIu64 ", \"bytes\": %" PRIu64 "}}",
            reducer->trace_has_slices ? "," : "", name, reducer->rank, row,
            begin_us - reducer->trace_origin_us, end_us - begin_us, reducer->steps - 1, bytes);
    reducer->trace_has_slices = true;
}

void ddpi_trace_step(struct ddp_reducer *reducer)
{
    if (reducer->trace == NULL)
        return;
    write_slice(reducer, "backward", 0, reducer->step_begin_us, reducer->finish_us, 0);
    write_slice(reducer, "finish", 0, reducer->finish_us, reducer->step_end_us, 0);
    for (uint32_t i = 0; i < reducer->plan.nbuckets; i++) {
        const struct ddpi_bucket *bucket = &reducer->buckets[i];
        char name[32];
        snprintf(name, sizeof name, "fill %u", i);
        write_slice(reducer, name, 2 * i + 1, bucket->first_ready_us, bucket->full_us,
                    bytes_of(bucket));
        snprintf(name, sizeof name, "reduce %u", i);
        write_slice(reducer, name, 2 * i + 2, bucket->begin_us, bucket->end_us, bytes_of(bucket));
    }
}

/* A trace that could not be written to the end is short, but training is done. */
void ddpi_trace_close(struct ddp_reducer *reducer)
{
    if (reducer->trace == NULL)
        return;
    fputs("\n]\n", reducer->trace);
    fclose(reducer->trace);
    reducer->trace = NULL;
}
