/*
 * perf.h - shared by the benchmarks of ddp-bench and ddp-scale: options, the file for figures, and
 * questions about processes and programs.
 */
#ifndef TESTS_BENCH_PERF_H
#define TESTS_BENCH_PERF_H

#include "options.h"
#include "perf_program.h"
#include "perf_stats.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct perf_options {
    const char *json; /* file for JSON lines; NULL: none */
    const char *ddprun;
    uint32_t runs;
    uint32_t slow_runs;   /* of contenders that take seconds */
    uint64_t duration_ms; /* of a run that does not end by itself */
    uint32_t kills;
    uint64_t watch_ms;
    const char *ddprund;
    bool help;
};

extern const struct option_table perf_option_table;

struct perf {
    struct perf_options options;
    FILE *json; /* NULL: none */
    char ddprun[4096];
    char ddprund[4096];
    char empty[4096]; /* a C program whose main() returns 0 */
};

/* run() returns false, with @err set, if it could not measure. */
struct perf_benchmark {
    const char *name; /* NULL: the end of a list */
    bool (*run)(struct perf *perf, struct ddp_error *err);
    const char *help;
};

bool perf_launch(struct perf *perf, struct ddp_error *err);
bool perf_store(struct perf *perf, struct ddp_error *err);
bool perf_restart(struct perf *perf, struct ddp_error *err);
bool perf_gradients(struct perf *perf, struct ddp_error *err);

struct perf_program {
    const char *name;
    const struct perf_benchmark *benchmarks;
    const char *more; /* for --help, after the list of benchmarks */
};

/* Run the benchmark that the command line names; returns the exit status. */
int perf_main(const struct perf_program *program, int argc, char **argv);

/* Microseconds on the monotonic clock. */
double perf_now_us(void);

/* Whether PATH has a program @name. */
bool perf_in_path(const char *name);

/* The value of a line of /proc/PID/status, such as "VmHWM:"; 0 if the line is missing. */
unsigned long perf_memory_kib(pid_t pid, const char *field);

/* The number of children of all threads of @pid, and the pid of one; 0: none. */
size_t perf_children(pid_t pid, pid_t *ret_one);

/* Processor time of the main thread of @pid; 0 if the kernel does not record it. */
double perf_cpu_us(pid_t pid);

#endif
