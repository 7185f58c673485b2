/*
 * perf_board.h - memory that ddp-perf shares with the workers of the jobs it measures: each stamps
 * when it runs, and all end when the measurement is over or ddp-perf is gone.
 */
#ifndef CMD_PERF_BOARD_H
#define CMD_PERF_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

enum { PERF_BOARD_STAMPS = 4096 };

struct perf_stamp {
    int32_t pid;
    uint32_t world;        /* ranks of its generation; 0: a child of a worker */
    uint64_t generation;   /* by whatever number the launcher tells apart what it starts */
    uint64_t meeting;      /* a hash of where its ranks are to meet */
    uint64_t at_us;        /* of CLOCK_MONOTONIC */
    _Atomic uint32_t done; /* all of this is there */
};

struct perf_board {
    int32_t owner; /* ddp-perf */
    _Atomic uint32_t over;
    _Atomic uint32_t count; /* may be greater than there are stamps */
    struct perf_stamp stamps[PERF_BOARD_STAMPS];
};

#endif
