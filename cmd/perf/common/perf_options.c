/*
 * perf_options.c - the option table of the benchmarks of processes and the store. Those of
 * collectives have one of their own, coll_options.c.
 */
#include "perf.h"

#define FIELD(member) offsetof(struct perf_options, member)

static const struct option table[] = {
    {"runs", 0, "N", NULL, "30", "Options", "counted runs of each contender", option_u32,
     FIELD(runs), 1, 100000},
    {"slow-runs", 0, "N", NULL, "3", "Options",
     "the same for contenders that take seconds (torchrun)", option_u32, FIELD(slow_runs), 0, 1000},
    {"duration", 0, "DURATION", NULL, "300ms", "Options", "store: how long each run lasts",
     option_duration, FIELD(duration_ms), 1, 3600000},
    {"kills", 0, "N", NULL, "1000", "Options",
     "restart: how often an agent is killed to see what it leaves behind", option_u32, FIELD(kills),
     0, 1000000},
    {"watch", 0, "DURATION", NULL, "0", "Options",
     "restart: for how long three nodes are watched under load: none may be lost", option_duration,
     FIELD(watch_ms), 0, 24 * 3600000},
    {"json", 0, "FILE", NULL, NULL, "Options", "write every figure to FILE, one JSON object a line",
     option_text, FIELD(json), 0, 0},
    {"ddprun", 0, "PATH", NULL, "the one beside ddp-perf", "Options", "the ddprun to measure",
     option_text, FIELD(ddprun), 0, 0},
    {"ddprund", 0, "PATH", NULL, "the one beside ddp-perf, or else store-server", "Options",
     "the server to measure", option_text, FIELD(ddprund), 0, 0},
    {"python", 0, "PATH", NULL, "build/venv's, or python3", "Options",
     "store, restart: a Python that has PyTorch", option_text, FIELD(python), 0, 0},
    {"help", 'h', NULL, NULL, NULL, "Options", "this list", option_show, FIELD(help), 0, 0},
};

const struct option_table perf_option_table = {
    .program = "ddp-perf", .options = table, .count = sizeof table / sizeof *table};
