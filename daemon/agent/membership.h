/*
 * membership.h - connects the member (member.h), the agent that does its work, and the link to the
 * round machine. Owns the first two and the member's timer. Publishes the status of the workers,
 * and writes what happens to the job to the console and to the log of events.
 */
#ifndef DAEMON_MEMBERSHIP_H
#define DAEMON_MEMBERSHIP_H

#include "agent.h"
#include "events.h"
#include "member.h"

/* The link to the round machine, in this process or in a store's server. */
struct membership_link {
    void *ctx;
    void (*publish)(void *ctx, const struct ddp_round_member *says);
    /* Publish the status of this node's workers as text (worker_status.h). NULL: no reader. */
    void (*describe)(void *ctx, const char *text);
    /* Leave the job: nothing runs here any more, and nothing will. */
    void (*leave)(void *ctx);
    /* The user wants the process to end at once, even after done(). NULL: nothing delays it. */
    void (*hurry)(void *ctx);
    /* All output is written; membership_close() follows. */
    void (*done)(void *ctx, int exit_code);
};

struct membership {
    struct agent agent;
    struct member member;
    struct events events;
    struct membership_link link;
    uv_timer_t timer;                   /* the member's deadline */
    uv_timer_t status_timer;            /* runs while a changed status is not published yet */
    char reported[DDP_ROUND_TEXT_SIZE]; /* the failure of this node, as reported by the agent */
    char waiting[DDP_ROUND_TEXT_SIZE];  /* the last logged reason for waiting */
    /* The notices that were logged; a node that comes and is refused all the time fills no log. */
    char notices[4][DDP_ROUND_TEXT_SIZE];
    unsigned notice_count;
    char other_command[DDP_ROUND_TEXT_SIZE]; /* the last logged node with another command */
};

/* Prepare @membership, which is zeroed; the node announces agent->nproc workers. On failure, too,
 * membership_close() and membership_finish() follow. */
DDP_MUST_CHECK ddp_status membership_init(struct membership *membership, uv_loop_t *loop,
                                          const struct agent_config *agent,
                                          const struct member_config *member,
                                          const struct membership_link *link,
                                          struct ddp_error *err);

/* Join the job; the rest follows from its events. */
void membership_start(struct membership *membership);

/* Events of the rounds; see struct ddp_round_hooks. Not to be called from within publish(). */
void membership_seat(struct membership *membership, const struct ddp_round_seat *seat);
void membership_contact(struct membership *membership, uint64_t sent_ms);
void membership_dropped(struct membership *membership, const char *why);
void membership_disconnected(struct membership *membership, const char *why);

/* Print @why and leave with @exit_code because of it, which is neither a worker's failure nor a
 * signal. */
void membership_leave(struct membership *membership, int exit_code, const char *why);

/* Write one line to the console: always, or unless ddprun is to be quiet. */
void membership_say(struct membership *membership, const char *format, ...) DDP_PRINTF(2, 3);
void membership_note(struct membership *membership, const char *format, ...) DDP_PRINTF(2, 3);

/* After done(): close the handles; membership_finish() once the loop has turned. */
void membership_close(struct membership *membership);
void membership_finish(struct membership *membership);

#endif
