/*
 * main.c - main() of ddp-perf: runs a benchmark of a collective, or chooses algorithms.
 */
#include "exit_codes.h"
#include "perf_coll.h"
#include "tune.h"

#include <stdio.h>
#include <string.h>

static const char help[] = "usage: ddp-perf COLLECTIVE [OPTIONS]\n"
                           "       ddprun --nproc-per-node=N ddp-perf COLLECTIVE [OPTIONS]\n"
                           "       ddp-perf tune --nproc=N --output=FILE [OPTIONS]\n"
                           "\nCollectives ('ddp-perf allreduce --help' lists their options)\n "
#define COLL_NAME(symbol, name, other, total, reduces, rooted) " " name
    COLL_CALL_MAP(COLL_NAME)
#undef COLL_NAME
        "\n"
        "\nChoosing algorithms ('ddp-perf tune --help' lists its options)\n"
        "  tune         measure the algorithms of all_reduce, and write DDP_ALGORITHM_TABLE\n";

int main(int argc, char **argv)
{
    enum coll_call call;
    const char *name = argc > 1 ? argv[1] : "";
    if (coll_find(name, &call))
        return coll_main(call, argc - 1, argv + 1);
    if (strcmp(name, "tune") == 0)
        return tune_main(argc - 1, argv + 1);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fputs(help, stdout);
        return 0;
    }
    if (argc < 2)
        fputs("ddp-perf: no collective is given; 'ddp-perf --help' lists them\n", stderr);
    else
        fprintf(stderr,
                "ddp-perf: '%s' is neither a collective nor 'tune'; 'ddp-perf --help' lists them\n",
                name);
    return EXIT_USAGE;
}
