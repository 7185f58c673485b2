/*
 * gpu_watch.h - the agent's view of the GPUs: their users, their faults, and free memory.
 *
 * Calls of NVML may never return, so two threads make them: one polls, one listens for faults. They
 * start when workers run for the first time, so that they do not delay a start. Without NVML or a
 * GPU the first thread ends at once, and every question here has the answer "not known". The
 * threads share their results with the loop through gpu_board.h, whose lock is never held during a
 * call.
 */
#ifndef DAEMON_GPU_WATCH_H
#define DAEMON_GPU_WATCH_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct gpu_board;

struct gpu_watch_hooks {
    void *ctx;
    /* Show a line on the console. */
    void (*say)(void *ctx, const char *line);
    /* gpu_watch_reclaim() waits no longer: the memory is free, or the time is over. */
    void (*settled)(void *ctx);
};

struct gpu_watch {
    struct gpu_board *board; /* NULL: not started, or closed */
    struct gpu_watch_hooks hooks;
    uv_loop_t *loop;
    uv_async_t news;
    uv_timer_t timer; /* limits the wait for an answer */
    uint64_t asked;   /* how often memory was waited for */
    uint64_t patience_ms;
    bool settling;
    bool unresponsive; /* NVML did not answer the last question: do not wait again */
    bool begun;        /* the threads are started only once */
    bool left;         /* closed while a thread was in NVML: exit without it */
};

void gpu_watch_init(struct gpu_watch *watch, uv_loop_t *loop, const struct gpu_watch_hooks *hooks);

/* @count workers run, @pids by local rank, with CUDA_VISIBLE_DEVICES=@visible (NULL: not set). */
void gpu_watch_begin(struct gpu_watch *watch, const pid_t *pids, uint32_t count,
                     const char *visible);

/* What @local_rank, which ended at @ended_us, used: "GPU 3 (NVIDIA H200, GPU-8a56a4bc), 70.1 GiB in
 * use 3.2 s before". false: not known. */
bool gpu_watch_describe(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                        char *text, size_t size);

/* The faults around @ended_us, when @local_rank ended: one per line, with advice. */
bool gpu_watch_faults(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                      struct ddpi_buf *out);

/* The most likely fault to explain its end: "Xid 79 (...) on GPU 3". false: none. */
bool gpu_watch_cause(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                     char *text, size_t size);

/* The workers have ended: wait for their memory to be freed, for at most @timeout_ms. settled()
 * follows, unless gpu_watch_settled() is true already. */
void gpu_watch_reclaim(struct gpu_watch *watch, uint64_t timeout_ms);
bool gpu_watch_settled(const struct gpu_watch *watch);
void gpu_watch_give_up(struct gpu_watch *watch);

/* The handles close while the loop turns. */
void gpu_watch_close(struct gpu_watch *watch);

#endif
