/*
 * perf_coll.h - the benchmarks of collectives: "ddp-perf allreduce" and its kin, with the options
 * and the columns of nccl-tests.
 *
 * They use base and libddpcomm and nothing else, so that they can be built where there is a
 * compiler and little more.
 */
#ifndef CMD_PERF_COLL_H
#define CMD_PERF_COLL_H

#include "options.h"
#include "perf_coll_math.h"

enum coll_place { COLL_AUTO, COLL_CUDA, COLL_CPU };

struct coll_options {
    uint64_t begin, end, step;
    uint32_t factor;
    uint32_t iters, warmup;
    uint32_t check; /* 0 = do not */
    ddp_reduce_op op;
    ddp_dtype dtype;
    uint32_t root;
    enum coll_place place;
    uint32_t nproc; /* processes to start; 0 = be one, or the threads of @local */
    uint32_t local; /* ranks of this process; 0 = one */
    ddp_algorithm algorithm;
    bool breakdown;
    const char *ddprun;
    const char *json;
    bool help;
};

extern const struct option_table coll_option_table;

/* Fill @ret with what is standard, then from the command line behind the benchmark's name. */
DDP_MUST_CHECK ddp_status coll_options_parse(int argc, char **argv, struct coll_options *ret,
                                             struct ddp_error *err);

/* The call that has this name; false if none has. */
bool coll_find(const char *name, enum coll_call *ret);

/* Run the benchmark of @call; the exit status. @argv begins with the program and has the arguments
 * behind the benchmark's name. */
int coll_main(enum coll_call call, int argc, char **argv);

#endif
