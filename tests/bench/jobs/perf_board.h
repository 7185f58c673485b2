/*
 * perf_board.h - memory that ddp-bench shares with the workers of the jobs it measures. Each worker
 * writes a stamp when it runs; all end when the measurement is over or ddp-bench has died.
 */
#ifndef TESTS_BENCH_PERF_BOARD_H
#define TESTS_BENCH_PERF_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

enum { PERF_BOARD_STAMPS = 4096 };

struct perf_stamp {
    int32_t pid;
    uint32_t world;        /* ranks of its generation; 0: a child of a worker */
    uint64_t generation;   /* the launcher's number of it */
    uint64_t meeting;      /* a hash of MASTER_ADDR and MASTER_PORT */
    uint64_t at_us;        /* of CLOCK_MONOTONIC */
    _Atomic uint32_t done; /* 1: the stamp is complete */
};

struct perf_board {
    int32_t owner; /* the pid of ddp-bench */
    _Atomic uint32_t over;
    _Atomic uint32_t count; /* may exceed PERF_BOARD_STAMPS */
    struct perf_stamp stamps[PERF_BOARD_STAMPS];
};

#endif
