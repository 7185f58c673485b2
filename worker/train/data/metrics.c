/*
 * metrics.c - <ddprun/ddp_metrics.h>: ranks gather what each has counted, and each adds it up. Owns
 * nothing.
 */
#include <ddprun/ddp_metrics.h>

#include "checksum.h"
#include "error.h"
#include "mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* What a rank tells of a metric. */
struct count {
    uint64_t identity; /* of name and kind */
    double value, weight;
};

enum { COUNT_NUMBERS = sizeof(struct count) / sizeof(uint64_t) };

/* ---- the arithmetic ---- */

/* Take a further value, or sum of values, into @value, which @weight says is there. */
static void combine(ddp_metric_kind kind, double *value, double *weight, double other,
                    double other_weight)
{
    if (other_weight == 0)
        return;
    if (kind == DDP_METRIC_MEAN || kind == DDP_METRIC_SUM)
        *value += other;
    else if (*weight == 0 || isnan(other) ||
             (kind == DDP_METRIC_MIN ? other < *value : other > *value))
        *value = other;
    *weight += other_weight;
}

void ddp_metric_add(struct ddp_metric *metric, double value, double weight)
{
    bool sums = metric->kind == DDP_METRIC_MEAN || metric->kind == DDP_METRIC_SUM;
    combine(metric->kind, &metric->value, &metric->weight, sums ? value * weight : value, weight);
}

void ddp_metrics_reset(struct ddp_metric *metrics, size_t count)
{
    for (size_t i = 0; i < count; i++)
        metrics[i].value = metrics[i].weight = 0;
}

static void set_result(struct ddp_metric *metric, double value, double weight)
{
    metric->total = weight;
    metric->result = metric->kind == DDP_METRIC_MEAN  ? value / weight
                     : metric->kind == DDP_METRIC_SUM ? value
                     : weight == 0                    ? (double)NAN
                                                      : value;
}

/* ---- the ranks ---- */

static ddp_status check_metrics(const struct ddp_metric *metrics, size_t count,
                                struct ddp_error *err)
{
    if (count == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "ddp_metrics_reduce(): there is no metric");
    for (size_t i = 0; i < count; i++) {
        const struct ddp_metric *metric = &metrics[i];
        if (metric->name == NULL || (unsigned)metric->kind > DDP_METRIC_MAX)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "metric %zu has no name, or a kind that does not exist", i);
        if (!isfinite(metric->weight) || metric->weight < 0)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "metric %zu (%s): the weights add up to %g, which must be finite "
                                  "and not negative",
                                  i, metric->name, metric->weight);
    }
    return DDP_OK;
}

static uint64_t identity_of(const struct ddp_metric *metric)
{
    struct ddpi_checksum sum;
    ddpi_checksum_start(&sum);
    return ddpi_checksum_end(&sum, metric->name, strlen(metric->name)) ^ (uint64_t)metric->kind;
}

static ddp_status compare_ranks(const struct ddp_metric *metrics, size_t count, uint32_t ranks,
                                const struct count *all, struct ddp_error *err)
{
    for (uint32_t rank = 1; rank < ranks; rank++)
        for (size_t i = 0; i < count; i++)
            if (all[rank * count + i].identity != all[i].identity)
                return ddpi_error_set(err, DDP_E_MISMATCH,
                                      "metric %zu of rank %" PRIu32
                                      " has another name or kind than that of rank 0; here it is "
                                      "%s: pass the same metrics in the same order on all ranks",
                                      i, rank, metrics[i].name);
    return DDP_OK;
}

static ddp_status reduce_counts(ddp_comm *comm, struct ddp_metric *metrics, size_t count,
                                struct count *own, struct count *all, struct ddp_error *err)
{
    uint32_t ranks = ddp_comm_world_size(comm);
    for (size_t i = 0; i < count; i++)
        own[i] = (struct count){identity_of(&metrics[i]), metrics[i].value, metrics[i].weight};
    ddp_status status =
        ddp_all_gather(comm, own, all, count * COUNT_NUMBERS, DDP_UINT64, NULL, err);
    if (status == DDP_OK)
        status = compare_ranks(metrics, count, ranks, all, err);
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        double value = 0, weight = 0;
        for (uint32_t rank = 0; rank < ranks; rank++)
            combine(metrics[i].kind, &value, &weight, all[rank * count + i].value,
                    all[rank * count + i].weight);
        set_result(&metrics[i], value, weight);
    }
    return status;
}

ddp_status ddp_metrics_reduce(ddp_comm *comm, struct ddp_metric *metrics, size_t count,
                              struct ddp_error *err)
{
    ddp_status status = check_metrics(metrics, count, err);
    if (status != DDP_OK)
        return status;
    size_t rows = (size_t)ddp_comm_world_size(comm) + 1;
    struct count *counts =
        count > SIZE_MAX / sizeof *counts / rows ? NULL : ddpi_calloc(count * rows, sizeof *counts);
    if (counts == NULL)
        return ddpi_error_nomem(err, sizeof *counts * count);
    status = reduce_counts(comm, metrics, count, counts, counts + count, err);
    ddpi_free(counts);
    return status;
}
