/*
 * perf_coll_context.h - what a rank of a benchmark of collectives has, whether it is a process or a
 * thread: its communicators, its buffers, its report.
 */
#ifndef CMD_PERF_COLL_CONTEXT_H
#define CMD_PERF_COLL_CONTEXT_H

#include "perf_coll_memory.h"
#include "perf_coll_report.h"

struct coll_rank {
    const struct coll_options *options;
    enum coll_call call;
    bool cuda;
    uint32_t local; /* its number on this machine */
    ddp_comm *comm; /* the one that is measured */
    ddp_comm *side; /* for the ranks' own messages, in host memory */
    uint32_t rank, ranks;
    struct coll_memory memory;
    struct coll_seat *seats; /* of all ranks */
    uint8_t *send, *recv;
    struct coll_report report; /* rank 0 uses it */
};

/* Microseconds on the monotonic clock. */
double coll_now_us(void);

/* Replace *@us by the greatest of all ranks. */
bool coll_rank_slowest(struct coll_rank *rank, double *us, struct ddp_error *err);

/* ---- the measurement (perf_coll_rank.c) ---- */

/* Measure all sizes; rank 0 prints them. @comm and @side stay the caller's. In rank 0 this opens
 * the report, which the caller closes, even if this fails. */
bool coll_rank_run(struct coll_rank *rank, struct ddp_error *err);

/* ---- NCCL as a contender (perf_coll_nccl.c) ---- */

/* Measure NCCL on the sizes of the report if each rank has its own device; otherwise print why not.
 * All ranks call it. */
bool coll_nccl(struct coll_rank *rank, struct ddp_error *err);

#endif
