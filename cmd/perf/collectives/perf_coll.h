/*
 * perf_coll.h - the benchmarks of collectives: "ddp-perf allreduce" and the others, with the
 * options and the columns of nccl-tests.
 *
 * They use only base and libddpcomm, so that a machine with little more than a compiler can build
 * them.
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
    uint32_t check; /* 0: do not check results */
    ddp_reduce_op op;
    ddp_dtype dtype;
    uint32_t root;
    enum coll_place place;
    uint32_t nodes; /* that ranks pretend to be on; 0: none */
    uint32_t nproc; /* processes to start; 0: be a process, or run the threads of @local */
    uint32_t local; /* threads, each a rank; 0: one rank */
    ddp_algorithm algorithm;
    bool alloc; /* buffers are those of ddp_alloc() */
    bool breakdown;
    const char *ddprun;
    const char *json;
    bool help;
};

extern const struct option_table coll_option_table;

/* Fill @ret with the defaults, then from the command line after the benchmark's name. */
DDP_MUST_CHECK ddp_status coll_options_parse(int argc, char **argv, struct coll_options *ret,
                                             struct ddp_error *err);

#define COLL_SIZES      "Sizes (bytes, or with a unit: K, M or G)"
#define COLL_MOST_BYTES (INT64_C(1) << 40)

/* Rows of an option table for the members begin, end, factor and step, which @field places. */
/* clang-format off */
#define COLL_SIZE_OPTIONS(field)                                                                 \
    {"minbytes", 'b', "SIZE", NULL, "32M", COLL_SIZES, "smallest size", option_size,             \
     field(begin), 0, COLL_MOST_BYTES},                                                          \
    {"maxbytes", 'e', "SIZE", NULL, "32M", COLL_SIZES, "largest size", option_size,              \
     field(end), 0, COLL_MOST_BYTES},                                                            \
    {"stepfactor", 'f', "N", NULL, NULL, COLL_SIZES, "multiply the size by N each time",         \
     option_u32, field(factor), 2, 1024},                                                        \
    {"stepbytes", 'i', "SIZE", NULL, "1M", COLL_SIZES, "or add this much each time",             \
     option_size, field(step), 0, COLL_MOST_BYTES}
/* clang-format on */

/* Find the call with this name; false: there is none. */
bool coll_find(const char *name, enum coll_call *ret);

/* Run the benchmark of @call and return the exit status. @argv is the program, then the arguments
 * after the benchmark's name. */
int coll_main(enum coll_call call, int argc, char **argv);

#endif
