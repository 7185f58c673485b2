/*
 * gpu_board.h - what the threads that ask NVML and the loop tell each other. Between gpu_watch.c
 * and gpu_board.c alone.
 *
 * All but what is marked is guarded by the lock, which is held for copying only. Whoever holds the
 * board, a thread or the loop, drops it when he is done; the last one frees it. A thread may be in
 * a call of NVML for ever, so nobody waits for one.
 */
#ifndef DAEMON_GPU_BOARD_H
#define DAEMON_GPU_BOARD_H

#include "gpu_fault.h"
#include "gpu_look.h"

#include <pthread.h>
#include <uv.h>

enum { GPU_FAULTS_MAX = 16 };

/* How long a fault has to do with what happens to a worker; one that comes again later is new. */
#define GPU_FAULT_WINDOW_US UINT64_C(30000000)

struct gpu_board {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* of the thread that looks */
    unsigned holders;
    bool over;
    uv_async_t *news; /* to be told when there is something for the loop; until @over */

    /* for the threads */
    char *visible;   /* CUDA_VISIBLE_DEVICES, or NULL; never changes */
    uint32_t count;  /* of workers; never changes */
    pid_t *pids;     /* by local rank */
    uint64_t starts; /* times that @pids has changed */
    uint64_t asked;  /* times that memory was waited for, until @until_us at the latest */
    uint64_t until_us;

    /* from them */
    bool ready; /* what is before @uses does not change any more */
    struct gpu gpus[GPUS_MAX];
    uint32_t gpus_count;
    uint32_t visible_gpus[GPUS_MAX]; /* in CUDA's order */
    uint32_t visible_count;
    struct gpu_use uses[GPU_USES_MAX];
    uint32_t uses_count;
    struct gpu_fault faults[GPU_FAULTS_MAX];
    bool fault_said[GPU_FAULTS_MAX];
    uint32_t faults_count;
    uint64_t answered; /* of @asked */
    char still_held[GPU_HOLDERS_TEXT];
    char trouble[256]; /* why GPUs that seem to be there are not watched */
};

/* Make a board for @count workers and start the thread that looks; NULL: it cannot be. The caller
 * holds it, too. */
struct gpu_board *gpu_board_start(const pid_t *pids, uint32_t count, const char *visible,
                                  uv_async_t *news);

/* Returns whether somebody else still holds it. */
bool gpu_board_drop(struct gpu_board *board);

#endif
