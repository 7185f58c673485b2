/*
 * metrics_text.h - the metrics of a job in the text format of Prometheus (version 0.0.4). Pure.
 *
 * Names begin with ddprun_, units are seconds and bytes, counters end in _total. Ranks are labels
 * of this node's workers only, so that the series of a job do not grow with its agents squared.
 */
#ifndef CMD_METRICS_TEXT_H
#define CMD_METRICS_TEXT_H

#include "buf.h"
#include "cluster_summary.h"
#include "job_history.h"
#include "job_view.h"

/* What a worker of this node has recorded of its operations in libddpcomm. */
struct metrics_rank {
    uint32_t rank;
    uint64_t operations;  /* that it has called */
    uint64_t all_reduced; /* bytes */
    uint64_t idle_ns;     /* since the latest of them was called, began or ended */
};

struct metrics_facts {
    const struct job_view *view;
    const struct job_history *history;
    const struct metrics_rank *ranks; /* those that have called an operation */
    size_t nranks;
    const char
        *stats; /* of the store, as DDP_STORE_OP_STATS gives them; NULL: it does not answer */
    size_t stats_len;
    const struct ddpi_cluster_summary *kept; /* NULL: no keepers keep the store */
};

/* Append the metrics to @text. False: it has no room, or no memory. */
bool metrics_put(struct ddpi_buf *text, const struct metrics_facts *facts);

#endif
