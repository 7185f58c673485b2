/*
 * bench.c - main() of ddp-bench: ddprun beside its peers, as scripts/bench measures them.
 */
#include "perf.h"
#include "turns.h"

#include <string.h>

static const struct perf_benchmark benchmarks[] = {
    {"launch", perf_launch, "start /bin/true N times: ddprun, a bare loop, other launchers"},
    {"store", perf_store, "requests to the store's server, and to Redis"},
    {"restart", perf_restart, "kill workers and agents, add nodes: the time until all run again"},
    {"gradients", perf_gradients, "the gradients of ResNet-50, reduced during a backward pass"},
    {NULL, NULL, NULL},
};

static const char more[] =
    "\nCollectives ('ddp-bench turns --help' lists the options)\n"
    "  turns CALL   a collective of libddpcomm, of MPI and of gloo, which take turns\n";

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "turns") == 0)
        return turns_main(argc - 1, argv + 1);
    return perf_main(&(struct perf_program){"ddp-bench", benchmarks, more}, argc, argv);
}
