/*
 * member.h - this node as a member of the job's rounds: it publishes the node's record, and decides
 * when workers start and end from the seat that the server assigns, from what the workers do, and
 * from how long the server has been silent. Pure: it holds no process, descriptor or clock; the
 * hooks do the work.
 *
 *     WAITING --RUN--> RUNNING --workers fail, STOP, store lost, leave--> ENDING
 *      ^  ^               |                                                 | nothing is left
 *      |  |               +--all exited 0--> FINISHED --STOP, RUN----+      |
 *      |  +----------------------------------------------------------+      |
 *      +--------------------------------------------------------------------+
 *      (any) --END, leave, give up--> [ENDING -->] OVER
 *
 * With a node check WAITING is reached through CHECKING: before the node joins, when a generation
 * has ended here, and when a user has admitted the node. While it runs the node has no workers, and
 * says that it is idle and checking: the server begins nothing before it knows the result. If the
 * node is not fit, it waits until it is admitted.
 *
 * Fencing: a member that has not heard from the server for the length of its lease, less a margin,
 * kills its workers. So they are gone before the server gives their ranks away. No two clocks are
 * compared: the member counts the lease from a moment before the server began to count it.
 */
#ifndef DAEMON_MEMBER_H
#define DAEMON_MEMBER_H

#include "sm.h"

#include <ddprun/round.h>

#define MEMBER_STATES(X)                                                                      \
    X(MEMBER, WAITING,                                                                        \
      DDPI_SM_TO(MEMBER_RUNNING) | DDPI_SM_TO(MEMBER_CHECKING) | DDPI_SM_TO(MEMBER_OVER),     \
      DDPI_SM_INITIAL)                                                                        \
    X(MEMBER, RUNNING, DDPI_SM_TO(MEMBER_FINISHED) | DDPI_SM_TO(MEMBER_ENDING), 0)            \
    X(MEMBER, FINISHED,                                                                       \
      DDPI_SM_TO(MEMBER_WAITING) | DDPI_SM_TO(MEMBER_RUNNING) | DDPI_SM_TO(MEMBER_CHECKING) | \
          DDPI_SM_TO(MEMBER_OVER),                                                            \
      0)                                                                                      \
    X(MEMBER, ENDING,                                                                         \
      DDPI_SM_TO(MEMBER_WAITING) | DDPI_SM_TO(MEMBER_CHECKING) | DDPI_SM_TO(MEMBER_OVER), 0)  \
    X(MEMBER, CHECKING, DDPI_SM_TO(MEMBER_WAITING) | DDPI_SM_TO(MEMBER_OVER), 0)              \
    X(MEMBER, OVER, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(member, MEMBER_STATES);

/* How to end the workers. */
enum member_stop {
    MEMBER_STOP_ORDERLY, /* ask them; they have --shutdown-timeout */
    MEMBER_STOP_FAILED,  /* ask them after a failure; they have --failure-timeout */
    MEMBER_STOP_KILL     /* kill them now */
};

/* Each hook may call back into the member. */
struct member_hooks {
    void *ctx;
    /* Start the workers of @seat: member_started() or member_failed() follow. */
    void (*start)(void *ctx, const struct ddp_round_seat *seat);
    /* End the workers because of @why: member_cleared() follows. Later calls may be more urgent. */
    void (*stop)(void *ctx, enum member_stop how, const char *why);
    /* Find out whether the node is fit: member_checked() follows, at the latest when its time is
     * over. NULL: every node is. */
    void (*check)(void *ctx);
    /* Nobody wants to know any more: member_checked() follows soon. */
    void (*end_check)(void *ctx);
    /* Send the node's record to the server. Each record replaces the one before, so one that gets
     * lost does no harm. */
    void (*publish)(void *ctx, const struct ddp_round_member *says);
    /* Nothing runs any more: leave the job and exit with @exit_code because of @why ("": all
     * workers ended with exit code 0). */
    void (*over)(void *ctx, int exit_code, const char *why);
};

struct member {
    struct ddpi_sm sm;
    struct member_hooks hooks;
    struct ddp_round_member says;               /* as published last */
    struct ddp_round_seat seat;                 /* as assigned last */
    uint32_t lease_ms;                          /* 0: no server could lose this node */
    uint64_t join_timeout_ms;                   /* give up after this long without a seat */
    uint64_t contact_ms;                        /* the lease begins here or later */
    uint64_t waiting_since_ms;                  /* without a seat */
    bool heard;                                 /* the server has answered at least once */
    bool seat_void;                             /* the server has dropped this node: ignore @seat */
    char dropped_why[DDP_ROUND_TEXT_SIZE];      /* the server's last reason for that; "": none */
    char disconnected_why[DDP_ROUND_TEXT_SIZE]; /* why there is no connection; "": not known */
    bool joined;                                /* it has published something */
    bool leaving;                               /* OVER follows ENDING, CHECKING or WAITING */
    bool killing;                               /* ENDING: already MEMBER_STOP_KILL */
    int exit_code;                              /* of OVER */
    char why[DDP_ROUND_TEXT_SIZE];
};

struct member_config {
    struct ddp_round_member says; /* name, address, node_rank, master_port, terms */
    uint32_t lease_ms;
    uint64_t join_timeout_ms;
};

void member_init(struct member *member, const struct member_config *config,
                 const struct member_hooks *hooks);

/* Join the job: check the node, and publish for the first time. */
void member_join(struct member *member, uint64_t now_ms);

/* Events from the server; see struct ddp_round_hooks. */
void member_seat(struct member *member, const struct ddp_round_seat *seat, uint64_t now_ms);
void member_contact(struct member *member, uint64_t sent_ms, uint64_t now_ms);
void member_dropped(struct member *member, const char *why, uint64_t now_ms);
/* The connection is lost: forget the server's last reason. */
void member_disconnected(struct member *member, const char *why);

/* Events from the workers: all run; one has failed (called again when its exit code is known); all
 * have exited with 0; none is left after stop(). */
void member_started(struct member *member);
void member_failed(struct member *member, const struct ddp_round_failure *failure);
void member_finished(struct member *member, uint64_t now_ms);
void member_cleared(struct member *member, uint64_t now_ms);
/* CHECKING: the node is fit, or @why not ("": it is). */
void member_checked(struct member *member, const char *why, uint64_t now_ms);

/* Leave the job with @exit_code because of @why, and end the workers as @how says. May be called
 * again with a more urgent @how. */
void member_leave(struct member *member, int exit_code, const char *why, enum member_stop how);

/* Do what is due; the time of the next call, UINT64_MAX: none. */
void member_tick(struct member *member, uint64_t now_ms);
uint64_t member_deadline(const struct member *member);

/* How long before the end of its lease a member kills its workers: the time that this takes. */
uint32_t member_margin_ms(uint32_t lease_ms);

#endif
