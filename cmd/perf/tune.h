/*
 * tune.h - "ddp-perf tune": measures the algorithms of all_reduce, and writes a table of the
 * fastest ones for DDP_ALGORITHM_TABLE.
 *
 * Each algorithm is a job of its own, and they take turns (turn_rounds.h).
 */
#ifndef CMD_PERF_TUNE_H
#define CMD_PERF_TUNE_H

#include "options.h"

struct tune_options {
    uint64_t begin, end;
    uint32_t factor;
    uint32_t nproc;
    uint32_t nodes; /* that ranks pretend to be on */
    const char *output;
    const char *json; /* file for JSON lines; NULL: none */
    const char *ddprun;
    bool help;
};

extern const struct option_table tune_option_table;

/* Fill @ret with the defaults, then from the command line after "tune", and check them. */
DDP_MUST_CHECK ddp_status tune_options_parse(int argc, char **argv, struct tune_options *ret,
                                             struct ddp_error *err);

/* Measure, print and write; returns the exit status. @argv is the program, then the arguments
 * after "tune". */
int tune_main(int argc, char **argv);

#endif
