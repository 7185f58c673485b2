/*
 * turns.h - "ddp-perf CALL --mpi --gloo": the call of ddprun beside that of its peers.
 *
 * Each contender is a job of its own (tests/bench/players), all of them started at first. For each
 * size they take turns, several times round, and the medians are compared: so a machine that is
 * busy for a while slows all of them down. The ranks of a contender without the turn sleep in
 * read(2).
 */
#ifndef CMD_PERF_TURNS_H
#define CMD_PERF_TURNS_H

#include "perf_coll.h"

/* Measure all sizes and print them; returns the exit status. */
int turns_main(const struct coll_options *options, enum coll_call call);

#endif
