/*
 * scale.c - main() of ddp-scale: what the store's server costs with a million keys, ten thousand
 * clients or ten thousand nodes, and a communicator with many ranks. It takes ddp-bench's options
 * and prints and writes in its form.
 */
#include "scale.h"

#include "error.h"

#include <string.h>
#include <sys/resource.h>

static const struct perf_benchmark benchmarks[] = {
    {"growth", scale_growth,
     "the cost of an operation beside many keys, waits, sessions or connections"},
    {"swarm", scale_swarm, "10,000 clients: connect, pass a barrier, be woken by one set"},
    {"rendezvous", scale_rendezvous, "100 to 10,000 nodes meet, and meet again when one is lost"},
    {"crowd", scale_crowd, "100 to 100,000 agents, a hundred on each connection, meet"},
    {"ranks", scale_ranks, "what a communicator of 2 to 64 ranks costs"},
    {"copies", scale_copies, "what the copies of an all-reduce cost alone"},
    {"deaths", scale_deaths, "how soon the other ranks know that one was killed"},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    struct rlimit files; /* of this process and of the servers, which inherit it */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return perf_main(&(struct perf_program){"ddp-scale", benchmarks, ""}, argc, argv);
}
