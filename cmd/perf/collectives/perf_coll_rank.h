/*
 * perf_coll_rank.h - one rank of a benchmark of collectives, whether it is a process or a thread.
 */
#ifndef CMD_PERF_COLL_RANK_H
#define CMD_PERF_COLL_RANK_H

#include "perf_coll_memory.h"
#include "perf_coll_report.h"

struct coll_rank {
    const struct coll_options *options;
    enum coll_call call;
    bool cuda;
    uint32_t local; /* its number on this machine */
    ddp_comm *comm; /* what is measured */
    ddp_comm *side; /* what the ranks tell each other meanwhile: on host memory */
    uint32_t rank, ranks;
    struct coll_memory memory;
    struct coll_seat *seats; /* of all ranks */
    uint8_t *send, *recv;
    struct coll_report report; /* rank 0 uses it */
};

/* Measure all sizes, and print if it is rank 0. @comm and @side stay the caller's. The report is to
 * be closed by the caller where it was opened, which is in rank 0, even if this fails. */
bool coll_rank_run(struct coll_rank *rank, struct ddp_error *err);

/* The same number from all ranks: the greatest of theirs. */
bool coll_rank_slowest(struct coll_rank *rank, double *us, struct ddp_error *err);

/* ---- nccl.c ---- */

/* NCCL on the sizes of the report, where each rank has a device of its own; else a line says why
 * not. All ranks call it. */
bool coll_nccl(struct coll_rank *rank, struct ddp_error *err);

#endif
