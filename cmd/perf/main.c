/*
 * main.c - main() of ddp-perf: picks the benchmark, opens the file for its figures.
 *
 * A benchmark prints a table on stdout (Markdown, readable as it is) and, with --json, one JSON
 * object a line to a file. It measures against the real peer in the same run.
 */
#include "clock.h"
#include "error.h"
#include "perf.h"
#include "perf_coll.h"
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
     "100 to 10,000 nodes meet, and meet again when one is lost: time, and memory of the server"},
    {"restart", perf_restart,
     "workers, agents and nodes die and come: time until all run again; what is left behind"},
    {"store-server", perf_store_server, "no benchmark: the server that 'store' measures"},
};

static void print_help(FILE *out)
{
    fputs("usage: ddp-perf BENCHMARK [OPTIONS]\n\nBenchmarks\n", out);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        fprintf(out, "  %-12s %s\n", verbs[i].name, verbs[i].help);
    fputs("\nCollectives, with options of their own ('ddp-perf allreduce --help')\n ", out);
    for (int call = 0; call < COLL_CALLS; call++)
        fprintf(out, " %s", coll_kinds[call].name);
    fputs("\n", out);
    options_print_help(&perf_option_table, out);
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
    enum coll_call call;
    if (argc > 1 && coll_find(argv[1], &call))
        return coll_main(call, argc - 1, argv + 1);
    perf_verb verb = argc > 1 ? find_verb(argv[1]) : NULL;
    int shift = verb != NULL;
    ddp_status status = options_parse(&perf_option_table, argc - shift, argv + shift, environ,
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
