/*
 * perf_restart.h - what the restarts of ddprun and of torchrun, measured side by side, share.
 */
#ifndef CMD_PERF_RESTART_H
#define CMD_PERF_RESTART_H

#include "perf_job.h"

enum { PERF_RESTART_WORKERS = 4 }; /* of a node */

/* In the order of the table. */
enum perf_restart_case {
    PERF_RESTART_WORKER,   /* one of a node's workers is killed: all run again */
    PERF_RESTART_WORKERS3, /* the same with three nodes */
    PERF_RESTART_AGENT,    /* the agent of one node of three is killed: the others run again */
    PERF_RESTART_JOIN,     /* a second node is started: both run */
    PERF_RESTART_LONE,     /* one node of a job for one or two is started: it runs */
    PERF_RESTART_CASES
};

/* A row of the table. @lost: how often nothing came of it within @limit_ms. */
void perf_restart_row(struct perf *perf, const char *launcher, enum perf_restart_case what,
                      struct perf_samples *times, uint32_t lost, uint32_t limit_ms);

/* torchrun's rows; left out, saying so, where no Python has PyTorch. */
bool perf_restart_torch(struct perf *perf, struct ddp_error *err);

#endif
