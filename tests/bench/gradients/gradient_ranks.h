/*
 * gradient_ranks.h - ranks that reduce gradients, each in a process of its own, and what they have
 * measured.
 */
#ifndef TESTS_BENCH_GRADIENT_RANKS_H
#define TESTS_BENCH_GRADIENT_RANKS_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Medians over the steps, in microseconds, of rank 0. */
struct gradient_times {
    double compute; /* the backward pass alone */
    double reduce;  /* the reduction alone: all gradients are ready at once */
    double step;    /* both */
    double mark;    /* a call of ddp_reducer_ready() that starts no reduction */
    uint64_t buckets;
};

struct gradient_job {
    uint32_t ranks;
    uint32_t steps;
    uint32_t backward_ms; /* processor time of a rank in a backward pass */
    bool views;
};

/* Measure ResNet-50's gradients. Blocks until all ranks have ended. */
ddp_status gradient_ranks_run(const struct gradient_job *job, struct gradient_times *ret,
                              struct ddp_error *err);

/* Many gradients of 1 KiB: a step of the reducer, and an all-reduce for each gradient. */
struct many_times {
    double reducer, calls, mark;
};

ddp_status gradient_ranks_run_many(uint32_t ranks, uint32_t steps, struct many_times *ret,
                                   struct ddp_error *err);

enum { MANY_GRADIENTS = 2000 };

#endif
