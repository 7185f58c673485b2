/*
 * turns.h - "ddp-bench turns CALL": the call of ddprun beside that of its peers.
 *
 * Each contender is a job of its own (contender.h), all of them started at first. For each size
 * they take turns, several times round, and the medians are compared: so a machine that is busy for
 * a while slows all of them down. The ranks of a contender without the turn sleep in read(2).
 */
#ifndef TESTS_BENCH_TURNS_H
#define TESTS_BENCH_TURNS_H

#include "options.h"
#include "perf_coll_math.h"

struct turns_options {
    enum coll_call call;
    uint64_t begin, end, step;
    uint32_t factor;
    uint32_t nproc;
    bool alloc; /* the buffers of ours are those of ddp_alloc() */
    bool mpi, gloo;
    const char *ddprun;
    const char *json; /* file for JSON lines; NULL: none */
    bool help;
};

extern const struct option_table turns_option_table;

/* Fill @ret with the defaults, then from the command line after "turns", and check them. */
DDP_MUST_CHECK ddp_status turns_options_parse(int argc, char **argv, struct turns_options *ret,
                                              struct ddp_error *err);

/* Measure all sizes and print them; returns the exit status. @argv is the program, then the
 * arguments after "turns". */
int turns_main(int argc, char **argv);

#endif
