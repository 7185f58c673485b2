/*
 * sigwatch.h - signals as events of the loop.
 */
#ifndef DAEMON_SIGWATCH_H
#define DAEMON_SIGWATCH_H

#include <ddprun/status.h>
#include <signal.h>
#include <stdbool.h>
#include <uv.h>

/* A zeroed struct watches none. */
struct sigwatch {
    uv_signal_t handles[NSIG];
    bool open[NSIG];
};

/* Whether this process was started with @sig ignored, as by nohup, which then stays so. */
bool sigwatch_stays_ignored(int sig);

/* Call @callback, with @data in the handle, for each @sig, unless that stays ignored. */
DDP_MUST_CHECK ddp_status sigwatch_add(struct sigwatch *watch, uv_loop_t *loop, int sig,
                                       uv_signal_cb callback, void *data, struct ddp_error *err);

/* The same for each signal of two sets; one in both is an ending one. */
DDP_MUST_CHECK ddp_status sigwatch_add_sets(struct sigwatch *watch, uv_loop_t *loop,
                                            const sigset_t *ending, uv_signal_cb on_ending,
                                            const sigset_t *forwarded, uv_signal_cb on_forwarded,
                                            void *data, struct ddp_error *err);

/* The handles close while the loop turns. */
void sigwatch_close(struct sigwatch *watch);

#endif
