/*
 * ddp_perf.c - main() of ddp-perf: picks the benchmark, opens the file for its figures.
 *
 * A benchmark prints a table on stdout (Markdown, readable as it is) and, with --json, one JSON
 * object a line to a file. It measures against the real peer in the same run.
 */
#include "clock.h"
#include "error.h"
#include "perf.h"
#include "version.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const struct {
    const char *name;
    perf_verb run;
    const char *help;
} verbs[] = {
    {"launch", perf_launch, "start N x /bin/true and wait: ddprun, a bare loop, other launchers"},
    {"store", perf_store,
     "the store's server beside Redis, and PyTorch's for its own client; growth; 10,000 clients"},
    {"rendezvous", perf_rendezvous,
     "10,000 nodes meet, and meet again when one is lost: time, and memory of the server"},
    {"restart", perf_restart,
     "workers, agents and nodes die and come: time until all run again; what is left behind"},
    {"store-server", perf_store_server, "no benchmark: the server that 'store' measures"},
};

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
    {"help", 'h', NULL, NULL, NULL, "Options", "this list", option_switch, FIELD(help), 0, 0},
};

static const struct option_table perf_table = {
    .program = "ddp-perf", .options = table, .count = sizeof table / sizeof *table};

static void print_help(FILE *out)
{
    fputs("usage: ddp-perf BENCHMARK [OPTIONS]\n\nBenchmarks\n", out);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        fprintf(out, "  %-12s %s\n", verbs[i].name, verbs[i].help);
    options_print_help(&perf_table, out);
}

double perf_now_us(void)
{
    return (double)ddpi_now_us(&ddpi_clock_monotonic);
}

static perf_verb find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return verbs[i].run;
    return NULL;
}

/* Paths of what is measured: as given, or what was built together with this program. */
static void find_programs(struct perf *perf)
{
    const struct perf_options *options = &perf->options;
    perf_beside("ddp-perf-empty", perf->empty, sizeof perf->empty);
    perf_beside("../venv/bin/python", perf->python, sizeof perf->python);
    perf_beside("ddprun", perf->ddprun, sizeof perf->ddprun);
    perf_beside("ddprund", perf->ddprund, sizeof perf->ddprund);
    if (options->ddprun != NULL)
        snprintf(perf->ddprun, sizeof perf->ddprun, "%s", options->ddprun);
    if (options->ddprund != NULL)
        snprintf(perf->ddprund, sizeof perf->ddprund, "%s", options->ddprund);
    else if (access(perf->ddprund, X_OK) != 0)
        *perf->ddprund = '\0';
}

static int fail(int code, const struct ddp_error *err)
{
    fprintf(stderr, "ddp-perf: %s\n", err->msg);
    return code;
}

static int run_verb(struct perf *perf, perf_verb verb)
{
    struct ddp_error err;
    find_programs(perf);
    if (perf->options.json != NULL && (perf->json = fopen(perf->options.json, "we")) == NULL) {
        ddpi_error_sys(&err, errno, "cannot write to '%s'", perf->options.json);
        return fail(78, &err);
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* rows appear as they are measured, through a pipe too */
    bool done = verb(perf, &err);
    if (perf->json != NULL && fclose(perf->json) != 0 && done) {
        ddpi_error_sys(&err, errno, "cannot write to '%s'", perf->options.json);
        done = false;
    }
    return done ? 0 : fail(1, &err);
}

int main(int argc, char **argv)
{
    struct ddp_error err;
    struct perf perf = {.options = {.runs = 30, .slow_runs = 3, .duration_ms = 300, .kills = 1000}};
    int operand;
    perf_verb verb = argc > 1 ? find_verb(argv[1]) : NULL;
    int shift = verb != NULL;
    ddp_status status = options_parse(&perf_table, argc - shift, argv + shift, environ,
                                      &perf.options, &operand, &err);
    if (status != DDP_OK)
        return fail(2, &err);
    if (perf.options.help) {
        print_help(stdout);
        return 0;
    }
    if (verb == NULL || operand != argc - shift) {
        ddpi_error_set(&err, DDP_E_INVALID, "'%s' is no benchmark; 'ddp-perf --help' lists them",
                       verb != NULL ? argv[operand + shift]
                       : argc > 1   ? argv[1]
                                    : "");
        return fail(2, &err);
    }
    return run_verb(&perf, verb);
}
