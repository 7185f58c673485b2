/*
 * perf_options.c - the option table of the benchmarks of processes and of the store. The table for
 * collectives is in coll_options.c.
 */
#include "perf.h"

#define FIELD(member) offsetof(struct perf_options, member)

static const struct option table[] = {
    {"runs", 0, "N", NULL, "30", "Options", "count this many runs of each contender", option_u32,
     FIELD(runs), 1, 100000},
    {"slow-runs", 0, "N", NULL, "3", "Options",
     "launch: count this many runs of contenders that take seconds (torchrun)", option_u32,
     FIELD(slow_runs), 0, 1000},
    {"duration", 0, "DURATION", NULL, "300ms", "Options",
     "store: load the server for this long in each run", option_duration, FIELD(duration_ms), 1,
     3600000},
    {"kills", 0, "N", NULL, "1000", "Options",
     "restart: kill an agent this often and count the processes that it leaves behind", option_u32,
     FIELD(kills), 0, 1000000},
    {"watch", 0, "DURATION", NULL, "0", "Options",
     "restart: watch three nodes under load for this long; none may be declared lost",
     option_duration, FIELD(watch_ms), 0, 24 * 3600000},
    {"json", 0, "FILE", NULL, NULL, "Options",
     "write every figure to FILE, one JSON object per line", option_text, FIELD(json), 0, 0},
    {"ddprun", 0, "PATH", NULL, "next to this program, or in PATH", "Options",
     "the ddprun to measure", option_text, FIELD(ddprun), 0, 0},
    {"ddprund", 0, "PATH", NULL, "next to this program, or in PATH", "Options",
     "the ddprund to measure", option_text, FIELD(ddprund), 0, 0},
    OPTION_HELP("Options", FIELD(help)),
};

const struct option_table perf_option_table = {
    .program = "ddp-bench", .options = table, .count = sizeof table / sizeof *table};
