/*
 * scale.h - the benchmarks of ddp-scale. Each returns false, with the sentence in @err, if it could
 * not measure.
 */
#ifndef TESTS_BENCH_SCALE_H
#define TESTS_BENCH_SCALE_H

#include "perf.h"

bool scale_growth(struct perf *perf, struct ddp_error *err);
bool scale_swarm(struct perf *perf, struct ddp_error *err);
bool scale_rendezvous(struct perf *perf, struct ddp_error *err);
bool scale_crowd(struct perf *perf, struct ddp_error *err);
bool scale_ranks(struct perf *perf, struct ddp_error *err);
bool scale_copies(struct perf *perf, struct ddp_error *err);
bool scale_deaths(struct perf *perf, struct ddp_error *err);

#endif
