/*
 * flight_answers.h - answers ddpctl dump: watches the job's store for those who ask, and sends them
 * what the workers of this node have recorded (flight_ask.h).
 */
#ifndef CMD_FLIGHT_ANSWERS_H
#define CMD_FLIGHT_ANSWERS_H

#include <ddprun/store_uv.h>
#include <stdbool.h>
#include <uv.h>

struct agent;

struct flight_answers {
    const struct agent *agent;
    struct ddp_store_options options;
    ddp_store_uv *store; /* NULL: not connected yet */
    uv_timer_t later;
    bool open;       /* @later is a handle */
    unsigned unsent; /* answers that the store has not confirmed */
};

/* Begin to watch the store of @options, which names the job, a second from now: most jobs that fail
 * at once need no connection for this. @options and @agent must outlive the answers. */
void flight_answers_open(struct flight_answers *answers, uv_loop_t *loop,
                         const struct ddp_store_options *options, const struct agent *agent);

/* The handles close while the loop turns. Does nothing to a zeroed struct. */
void flight_answers_close(struct flight_answers *answers);

#endif
