/*
 * main.c - main() of ddp-perf: runs a benchmark of collectives, or one of the others.
 */
#include "perf.h"
#include "perf_coll.h"
#include "tune.h"
#include "turns.h"

#include <string.h>

static const struct perf_benchmark benchmarks[] = {
    {"launch", perf_launch, "start /bin/true N times: ddprun, a bare loop, other launchers"},
    {"store", perf_store, "requests to the store's server, and to Redis"},
    {"restart", perf_restart, "kill workers and agents, add nodes: the time until all run again"},
    {"gradients", perf_gradients, "the gradients of ResNet-50, reduced during a backward pass"},
    {NULL, NULL, NULL},
};

static const char collectives[] =
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
    if (argc > 1 && coll_find(argv[1], &call))
        return coll_main(call, argc - 1, argv + 1, turns_main);
    if (argc > 1 && strcmp(argv[1], "tune") == 0)
        return tune_main(argc - 1, argv + 1);
    return perf_main(&(struct perf_program){"ddp-perf", benchmarks, collectives}, argc, argv);
}
