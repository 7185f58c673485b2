/*
 * store_loop.h - an event loop for actions that run until SIGINT, SIGTERM, or the reader of
 * standard output closes it.
 */
#ifndef CMD_STORE_LOOP_H
#define CMD_STORE_LOOP_H

#include "ddpctl_store.h"

#include <ddprun/store_uv.h>
#include <uv.h>

struct ddpctl_loop {
    const struct ddpctl_call *call;
    void (*stop)(struct ddpctl_loop *loop); /* called on such an event */
    uv_loop_t uv;
    uv_signal_t signals[2];
    uv_poll_t output;
    int output_fd;       /* readable once standard output is closed; -1: not supported */
    uv_timer_t timer;    /* for the action's use */
    ddp_store_uv *store; /* NULL once the loop is ending */
    bool closing;
    ddp_status status; /* why the loop ended */
    struct ddp_error err;
};

/* Open a store handle with @options and @hooks, call @begin for the first request, and run until
 * ddpctl_loop_end(). Returns the status given there. */
ddp_status ddpctl_loop_run(struct ddpctl_loop *loop, const struct ddp_store_options *options,
                           const struct ddp_store_uv_hooks *hooks,
                           void (*begin)(struct ddpctl_loop *loop), struct ddp_error *err);

/* End the loop; only the first call counts. @sentence may be NULL for DDP_OK. */
void ddpctl_loop_end(struct ddpctl_loop *loop, ddp_status status, const char *sentence);

/* Submit a request with the call's timeout, unless the loop is ending; on failure, end the loop. */
void ddpctl_loop_ask(struct ddpctl_loop *loop, struct ddp_store_request request,
                     ddp_store_uv_done *done, void *data);

/* Flush standard output. On failure, end the loop and return false. */
bool ddpctl_loop_flush(struct ddpctl_loop *loop);

#endif
