/*
 * perf_coll_nccl.h - NCCL as a contender in the benchmarks of collectives.
 */
#ifndef CMD_PERF_COLL_NCCL_H
#define CMD_PERF_COLL_NCCL_H

#include "perf_coll_context.h"

/* Measure NCCL on the sizes of the report if each rank has its own device; otherwise print why not.
 * All ranks call it. */
bool coll_nccl(struct coll_rank *rank, struct ddp_error *err);

#endif
