/*
 * perf.h - what the benchmarks of ddp-perf have in common: options, and where figures go.
 */
#ifndef CMD_PERF_H
#define CMD_PERF_H

#include "options.h"
#include "perf_stats.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct perf_options {
    const char *json; /* file for JSON lines; NULL = none */
    const char *ddprun;
    uint32_t runs;
    uint32_t slow_runs;   /* for contenders that need seconds */
    uint64_t duration_ms; /* of one run, where a run has no end of its own */
    uint32_t kills;
    uint64_t watch_ms;
    const char *ddprund;
    bool help;
};

extern const struct option_table perf_option_table;

struct perf {
    struct perf_options options;
    FILE *json; /* or NULL */
    char ddprun[4096];
    char ddprund[4096];
    char empty[4096]; /* a C program whose main() returns 0 */
};

/* One benchmark: returns false, with the sentence in @err, if it could not measure. */
struct perf_benchmark {
    const char *name; /* NULL: the end of a list */
    bool (*run)(struct perf *perf, struct ddp_error *err);
    const char *help;
};

bool perf_launch(struct perf *perf, struct ddp_error *err);
bool perf_store(struct perf *perf, struct ddp_error *err);
bool perf_restart(struct perf *perf, struct ddp_error *err);

struct perf_program {
    const char *name;
    const struct perf_benchmark *benchmarks;
    const char *more; /* for --help, after the list of benchmarks */
};

/* Run the benchmark that the command line names; returns the exit status. */
int perf_main(const struct perf_program *program, int argc, char **argv);

/* Microseconds on the monotonic clock. */
double perf_now_us(void);

/* There is a program @name in PATH. */
bool perf_in_path(const char *name);

/* A line of /proc/PID/status, such as "VmHWM:"; 0 if it is not there. */
unsigned long perf_memory_kib(pid_t pid, const char *field);

/* How many children it has, of whichever of its threads, and the pid of one; 0: none. */
size_t perf_children(pid_t pid, pid_t *ret_one);

/* Where the program @name is: @given if that is not NULL, else beside this program, else in PATH.
 */
void perf_find_program(const char *name, const char *given, char *path, size_t size);

/* Processor time of the process's main thread; 0 if the kernel does not keep it. */
double perf_cpu_us(pid_t pid);

#endif
