/*
 * gpu_perf.c - a ddp-perf that has nothing but the collectives, for tests/gpu/run.
 */
#include "perf_coll.h"

int main(int argc, char **argv)
{
    enum coll_call call;
    if (argc < 2 || !coll_find(argv[1], &call)) {
        fputs("usage: ddp-perf CALL [OPTIONS]\n", stderr);
        return 2;
    }
    return coll_main(call, argc - 1, argv + 1);
}
