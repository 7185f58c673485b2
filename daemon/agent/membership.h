/*
 * membership.h - ties this node's part in the rounds (member.h) to the agent that does the work,
 * and to the link by which the rounds are reached. Owns both machines and the timer of the first;
 * tells people how the workers are, and says to the person at the console, and to the log of
 * events, what happens to the job.
 */
#ifndef DAEMON_MEMBERSHIP_H
#define DAEMON_MEMBERSHIP_H

#include "agent.h"
#include "events.h"
#include "member.h"

/* To the round machine, wherever it is: in this process, or behind a store. */
struct membership_link {
    void *ctx;
    void (*publish)(void *ctx, const struct ddp_round_member *says);
    /* How each worker of this node is, for people (worker_status.h). NULL: nobody can look. */
    void (*describe)(void *ctx, const char *text);
    /* Nothing runs here any more, and nothing will. */
    void (*leave)(void *ctx);
    /* The user wants it to be over at once, even after done(). NULL: nothing could hold it up. */
    void (*hurry)(void *ctx);
    /* All is said and done; membership_close() is what is left. */
    void (*done)(void *ctx, int exit_code);
};

struct membership {
    struct agent agent;
    struct member member;
    struct events events;
    struct membership_link link;
    uv_timer_t timer;                   /* the member's deadline */
    uv_timer_t describing;              /* workers have changed, which has not been told */
    char reported[DDP_ROUND_TEXT_SIZE]; /* the failure of this node that the agent has told */
    char waiting[DDP_ROUND_TEXT_SIZE];  /* for what, as told last */
};

/* Prepare. On failure, too, membership_close() and membership_finish() follow. */
DDP_MUST_CHECK ddp_status membership_init(struct membership *membership, uv_loop_t *loop,
                                          const struct agent_config *agent,
                                          const struct member_config *member,
                                          const struct membership_link *link,
                                          struct ddp_error *err);

/* Say that we are here; all else follows. */
void membership_start(struct membership *membership);

/* From the rounds: see struct ddp_round_hooks. Not from within publish(). */
void membership_seat(struct membership *membership, const struct ddp_round_seat *seat);
void membership_contact(struct membership *membership, uint64_t sent_ms);
void membership_lost(struct membership *membership, const char *why);
void membership_cut(struct membership *membership);

/* Leave for a reason that is neither the workers' nor a signal: @exit_code, because of @why. */
void membership_leave(struct membership *membership, int exit_code, const char *why);

/* One line for the person at the console. */
void membership_say(struct membership *membership, const char *format, ...) DDP_PRINTF(2, 3);

/* After done(): close the handles; membership_finish() once the loop has turned. */
void membership_close(struct membership *membership);
void membership_finish(struct membership *membership);

#endif
