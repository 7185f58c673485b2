/*
 * player.h - a rank of a contender (contender.h): a job that measures when it has the turn.
 *
 * player.c speaks with the benchmark; each contender is a program with its calls. "ddp-perf tune"
 * has one contender for each algorithm, "ddp-bench turns" (tests/bench) one for each library. Every
 * rank reads its orders from a FIFO of its own, so ranks without the turn sleep in read(2),
 * whatever their library does. The compiler of an MPI builds player.c, with a few files of base.
 */
#ifndef CMD_PERF_PLAYER_H
#define CMD_PERF_PLAYER_H

#include <stddef.h>

/* Bytes of float32; what each rank has in its buffers is in player.c. */
struct player_call {
    const char *name; /* "allreduce" */
    float *send, *recv;
    size_t count; /* elements: the argument of the call */
};

struct player {
    int rank, ranks;
    void *(*alloc)(size_t len);                  /* memory for buffers, all zero */
    void (*run)(const struct player_call *call); /* one call; ends the process on failure */
    void (*synchronize)(void);                   /* wait for all ranks */
    double (*slowest)(double us);                /* the greatest of all ranks */
};

/* Serve until the benchmark says that it is over; returns the exit status. */
int player_serve(const struct player *player);

/* Print a sentence that names this rank, and exit with status 1. */
void player_fail(int rank, const char *what) __attribute__((noreturn));

#endif
