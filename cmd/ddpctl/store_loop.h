/*
 * store_loop.h - a loop for actions that go on until they are told to end: by SIGINT or SIGTERM,
 * or because nobody reads standard output any more.
 */
#ifndef CMD_STORE_LOOP_H
#define CMD_STORE_LOOP_H

#include "ddpctl_store.h"

#include <ddprun/store_uv.h>
#include <uv.h>

struct ddpctl_loop {
    const struct ddpctl_call *call;
    void (*stop)(struct ddpctl_loop *loop); /* it is told to end */
    uv_loop_t uv;
    uv_signal_t signals[2];
    uv_poll_t output;
    int output_fd;       /* becomes readable when standard output is closed; -1: it cannot be */
    uv_timer_t timer;    /* the action's */
    ddp_store_uv *store; /* NULL once it has ended */
    bool closing;
    ddp_status status; /* why it has ended */
    struct ddp_error err;
};

/* Run until ddpctl_loop_end(), with the handle that @options and @hooks describe; @begin asks for
 * the first thing. Returns what ended it. */
ddp_status ddpctl_loop_run(struct ddpctl_loop *loop, const struct ddp_store_options *options,
                           const struct ddp_store_uv_hooks *hooks,
                           void (*begin)(struct ddpctl_loop *loop), struct ddp_error *err);

/* Only the first end counts. @sentence may be NULL for DDP_OK. */
void ddpctl_loop_end(struct ddpctl_loop *loop, ddp_status status, const char *sentence);

/* Ask within the call's timeout, unless the loop has ended; what cannot be asked ends it. */
void ddpctl_loop_ask(struct ddpctl_loop *loop, struct ddp_store_request request,
                     ddp_store_uv_done *done, void *data);

/* What was printed has to leave now; false, and the loop ends, if it cannot. */
bool ddpctl_loop_flush(struct ddpctl_loop *loop);

#endif
