/*
 * perf_main.c - main() of a program of benchmarks: picks the benchmark, finds the programs to
 * measure, opens the file for figures.
 *
 * A benchmark prints a Markdown table and, with --json, writes one JSON object per line to a file.
 * Within one run it measures ddprun and the other contenders alternately.
 */
#include "error.h"
#include "exit_codes.h"
#include "perf.h"

#include <errno.h>
#include <string.h>

extern char **environ;

static int exit_with(int code, const struct perf_program *program, const struct ddp_error *err)
{
    fprintf(stderr, "%s: %s\n", program->name, err->msg);
    return code;
}

static const struct perf_benchmark *find_benchmark(const struct perf_program *program,
                                                   const char *name)
{
    for (const struct perf_benchmark *at = program->benchmarks; at->name != NULL; at++)
        if (strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

static void print_help(const struct perf_program *program)
{
    printf("usage: %s BENCHMARK [OPTIONS]\n\nBenchmarks\n", program->name);
    for (const struct perf_benchmark *at = program->benchmarks; at->name != NULL; at++)
        printf("  %-12s %s\n", at->name, at->help);
    fputs(program->more, stdout);
    options_print_help(&perf_option_table, stdout);
}

static int run_benchmark(const struct perf_program *program, const struct perf_benchmark *benchmark,
                         struct perf *perf)
{
    struct ddp_error err;
    const struct perf_options *options = &perf->options;
    perf_find_program("ddp-bench-empty", NULL, perf->empty, sizeof perf->empty);
    perf_find_program("ddprun", options->ddprun, perf->ddprun, sizeof perf->ddprun);
    perf_find_program("ddprund", options->ddprund, perf->ddprund, sizeof perf->ddprund);
    if (options->json != NULL && (perf->json = fopen(options->json, "we")) == NULL) {
        ddpi_error_sys(&err, errno, "cannot write to '%s'", options->json);
        return exit_with(EXIT_CONFIG, program, &err);
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* show each row at once, even through a pipe */
    bool done = benchmark->run(perf, &err);
    if (perf->json != NULL && fclose(perf->json) != 0 && done) {
        ddpi_error_sys(&err, errno, "cannot write to '%s'", options->json);
        done = false;
    }
    return done ? 0 : exit_with(EXIT_FAILED, program, &err);
}

int perf_main(const struct perf_program *program, int argc, char **argv)
{
    struct ddp_error err;
    struct perf perf = {.options = {.runs = 30, .slow_runs = 3, .duration_ms = 300, .kills = 1000}};
    int operand;
    const struct perf_benchmark *benchmark = argc > 1 ? find_benchmark(program, argv[1]) : NULL;
    int shift = benchmark != NULL;
    ddp_status status = options_parse(&perf_option_table, argc - shift, argv + shift, environ,
                                      &perf.options, &operand, &err);
    if (status != DDP_OK)
        return exit_with(EXIT_USAGE, program, &err);
    if (perf.options.help) {
        print_help(program);
        return 0;
    }
    if (argc < 2) {
        ddpi_error_set(&err, DDP_E_INVALID, "no benchmark is given; '%s --help' lists them",
                       program->name);
        return exit_with(EXIT_USAGE, program, &err);
    }
    if (benchmark == NULL || operand != argc - shift) {
        ddpi_error_set(&err, DDP_E_INVALID, "'%s' is not a benchmark; '%s --help' lists them",
                       benchmark != NULL ? argv[operand + shift] : argv[1], program->name);
        return exit_with(EXIT_USAGE, program, &err);
    }
    return run_benchmark(program, benchmark, &perf);
}
