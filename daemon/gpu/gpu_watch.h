/*
 * gpu_watch.h - the agent's view of the GPUs: who uses which, what broke, whether memory is back.
 *
 * Two threads of its own ask NVML, as its calls may take for ever: one looks, one listens for
 * faults. They are started when workers run for the first time, so that a start does not wait for
 * them; where there is no NVML, or no GPU, the first one ends at once and everything here says
 * "nothing known". What they have found lies on a board (gpu_watch.c) that they share with the
 * loop, and that is never locked while NVML is asked.
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
    /* A line for the person. */
    void (*say)(void *ctx, const char *line);
    /* What gpu_watch_reclaim() was waiting for has come, or will not. */
    void (*settled)(void *ctx);
};

struct gpu_watch {
    struct gpu_board *board; /* NULL: not begun, or closed */
    struct gpu_watch_hooks hooks;
    uv_loop_t *loop;
    uv_async_t news;
    uv_timer_t timer; /* for an answer that does not come */
    uint64_t asked;   /* times that memory was waited for */
    uint64_t patience_ms;
    bool settling;
    bool deaf;  /* the last question was not answered: nobody waits for the next */
    bool begun; /* only once, however it went */
    bool left;  /* closed while a thread was in NVML: the process must end without it */
};

void gpu_watch_init(struct gpu_watch *watch, uv_loop_t *loop, const struct gpu_watch_hooks *hooks);

/* @count workers run, @pids by local rank, with CUDA_VISIBLE_DEVICES=@visible (NULL: not set). */
void gpu_watch_begin(struct gpu_watch *watch, const pid_t *pids, uint32_t count,
                     const char *visible);

/* "GPU 3 (NVIDIA H200, GPU-8a56a4bc), 70.1 GiB in use 3.2 s before": what @local_rank, which has
 * ended at @ended_us, used. false: not known. */
bool gpu_watch_describe(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                        char *text, size_t size);

/* The faults around @ended_us, when @local_rank ended: a line each, and what to do. */
bool gpu_watch_faults(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                      struct ddpi_buf *out);

/* The one that is most likely why it ended: "Xid 79 (...) on GPU 3". false: there is none. */
bool gpu_watch_cause(const struct gpu_watch *watch, uint32_t local_rank, uint64_t ended_us,
                     char *text, size_t size);

/* The workers have ended: wait for their memory, for at most @timeout_ms; settled() follows,
 * unless gpu_watch_settled() says at once that there is nothing to wait for. */
void gpu_watch_reclaim(struct gpu_watch *watch, uint64_t timeout_ms);
bool gpu_watch_settled(const struct gpu_watch *watch);
void gpu_watch_give_up(struct gpu_watch *watch);

/* The handles close while the loop turns. */
void gpu_watch_close(struct gpu_watch *watch);

#endif
