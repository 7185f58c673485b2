/*
 * ddprun/ddp_metrics.h - figures of a training or an evaluation, over all ranks: mean loss,
 * accuracy, largest gradient. Part of <ddprun/ddp.h>.
 *
 *     struct ddp_metric metrics[] = {{.name = "loss", .kind = DDP_METRIC_MEAN},
 *                                    {.name = "accuracy", .kind = DDP_METRIC_MEAN},
 *                                    {.name = "longest step", .kind = DDP_METRIC_MAX}};
 *     for (each batch of this rank) {
 *         ddp_metric_add(&metrics[0], mean_loss, images);
 *         ddp_metric_add(&metrics[1], right / images, images);
 *         ddp_metric_add(&metrics[2], seconds, 1);
 *     }
 *     status = ddp_metrics_reduce(comm, metrics, 3, &err);   // metrics[0].result is the mean of
 * all
 *
 * A mean is that of all values of all ranks, each with its weight: exact for batches and ranks that
 * have different numbers of items, which a mean of the ranks' means is not. All sums are float64,
 * added in the order of ranks, so all ranks have the same bits.
 */
#ifndef DDPRUN_DDP_METRICS_H
#define DDPRUN_DDP_METRICS_H

#include <ddprun/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ddp_metric_kind {
    DDP_METRIC_MEAN, /* sum(value * weight) / sum(weight) */
    DDP_METRIC_SUM,  /* sum(value * weight) */
    DDP_METRIC_MIN,
    DDP_METRIC_MAX
} ddp_metric_kind;

/* Set @name and @kind, and all else to zero. The struct is the caller's, as is the name. */
struct ddp_metric {
    const char *name;
    ddp_metric_kind kind;
    double value;  /* of this rank: sum(value * weight), or the least or largest value */
    double weight; /* of this rank: sum(weight); 0: there is no value yet */
    double result; /* over all ranks; NaN if they have no value, but 0 of a sum */
    double total;  /* the weight of all ranks */
};

/**
 * Count @value, with @weight: how many items it is the mean of, or 1. Asks no other rank, and does
 * not block. A weight of 0 changes nothing. NaN as a value makes the result NaN.
 */
DDP_API void ddp_metric_add(struct ddp_metric *metric, double value, double weight);

/** Forget the values of this rank. Results stay. */
DDP_API void ddp_metrics_reset(struct ddp_metric *metrics, size_t count);

/**
 * Set result and total of the @count metrics. All ranks of @comm call it, as a collective on host
 * memory, with metrics of the same names and kinds in the same order; it blocks as one. The values
 * of this rank stay, so it may go on counting. Each rank sends 24 bytes for each metric.
 *
 * DDP_E_INVALID: there is no metric, or one whose name is NULL, whose kind is none, or whose weight
 * is negative or not finite; nothing was sent. DDP_E_MISMATCH: a rank has another metric in this
 * place; the sentence has the place, the rank and this rank's name, and @comm stays usable.
 * Others as ddp_all_gather(), which also tells of ranks with different numbers of metrics.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_metrics_reduce(ddp_comm *comm, struct ddp_metric *metrics,
                                                     size_t count, struct ddp_error *err);

#ifdef __cplusplus
}
#endif

#endif
