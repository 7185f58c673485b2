/*
 * perf_coll_rank.h - measures a benchmark of collectives in one rank.
 */
#ifndef CMD_PERF_COLL_RANK_H
#define CMD_PERF_COLL_RANK_H

#include "perf_coll_context.h"

/* Measure all sizes; rank 0 prints them. @comm and @side stay the caller's. In rank 0 this opens
 * the report, which the caller closes, even if this fails. */
bool coll_rank_run(struct coll_rank *rank, struct ddp_error *err);

#endif
