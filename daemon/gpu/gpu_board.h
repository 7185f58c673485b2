/*
 * gpu_board.h - the memory that the loop shares with the two threads that call NVML. For
 * gpu_watch.c and gpu_board.c only.
 *
 * The lock guards every member that is not marked otherwise, and is held only to copy. The threads
 * and the loop each hold a reference; the last one frees the board. A call of NVML may never
 * return, so the threads are not joined.
 */
#ifndef DAEMON_GPU_BOARD_H
#define DAEMON_GPU_BOARD_H

#include "gpu_fault.h"
#include "gpu_look.h"

#include <pthread.h>
#include <uv.h>

enum { GPU_FAULTS_MAX = 16 };

/* A fault may explain the end of a worker within this time; after it the same is a new fault. */
#define GPU_FAULT_WINDOW_US UINT64_C(30000000)

struct gpu_board {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* wakes the polling thread */
    unsigned holders;
    bool over;
    uv_async_t *news; /* wakes the loop, until @over */

    /* set by the loop */
    char *visible;   /* CUDA_VISIBLE_DEVICES, or NULL; never changes */
    uint32_t count;  /* of workers; never changes */
    pid_t *pids;     /* by local rank */
    uint64_t starts; /* how often @pids has changed */
    uint64_t asked;  /* how often the loop has waited for memory; now until @until_us */
    uint64_t until_us;

    /* set by the threads */
    bool ready; /* the members up to visible_count are final */
    struct gpu gpus[GPUS_MAX];
    uint32_t gpus_count;
    uint32_t visible_gpus[GPUS_MAX]; /* in CUDA's order */
    uint32_t visible_count;
    struct gpu_use uses[GPU_USES_MAX];
    uint32_t uses_count;
    struct gpu_fault faults[GPU_FAULTS_MAX];
    bool fault_said[GPU_FAULTS_MAX];
    uint32_t faults_count;
    uint64_t answered; /* the last @asked that has an answer */
    char still_held[GPU_HOLDERS_TEXT];
    char trouble[256]; /* why existing GPUs cannot be watched */
};

/* Make a board for @count workers and start the polling thread; NULL: not possible. The caller
 * holds a reference too. */
struct gpu_board *gpu_board_start(const pid_t *pids, uint32_t count, const char *visible,
                                  uv_async_t *news);

/* Drop a reference; returns whether others are left. */
bool gpu_board_drop(struct gpu_board *board);

#endif
