/*
 * keeper_watch.h - what drives a keeper: a timer, and the signals that end it.
 */
#ifndef CMD_KEEPER_WATCH_H
#define CMD_KEEPER_WATCH_H

#include <uv.h>

enum { KEEPER_WATCH_SIGNALS = 4 };

/* The owner sets the callbacks and @ctx. */
struct keeper_watch {
    void (*tick)(void *ctx);
    void (*signal)(void *ctx, int signum); /* SIGTERM, SIGINT, SIGHUP, or KEEPER_END_SIGNAL */
    void *ctx;
    uv_timer_t timer;
    uv_signal_t signals[KEEPER_WATCH_SIGNALS];
};

/* Call @tick at once, then every @every_ms. */
void keeper_watch_start(struct keeper_watch *watch, uv_loop_t *loop, uint64_t every_ms);

/* The memory may go when the loop has ended. */
void keeper_watch_close(struct keeper_watch *watch);

#endif
