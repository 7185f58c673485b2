/*
 * member.h - this node's part in the job's rounds: what it says of itself, and what follows from
 * the seat that it is given, from what its workers do, and from what it has not heard. Pure: no
 * process, descriptor or clock inside; the agent tells it and does what it is told.
 *
 *     WAITING --RUN--> RUNNING --workers fail, STOP, store lost, leave--> ENDING
 *      ^  ^               |                                                 | nothing is left
 *      |  |               +--all ended well--> FINISHED --STOP, RUN--+      |
 *      |  +----------------------------------------------------------+      |
 *      +--------------------------------------------------------------------+
 *      (any) --END, leave, give up--> [ENDING -->] OVER
 *
 * Fencing: who has not heard from the server for its lease, less a margin, must take itself for
 * dead: its workers are killed before the server can give their ranks away. No clock is compared
 * with another: the lease is counted from the moment before the server began to count it.
 */
#ifndef DAEMON_MEMBER_H
#define DAEMON_MEMBER_H

#include "sm.h"

#include <ddprun/round.h>

#define MEMBER_STATES(X)                                                                      \
    X(MEMBER, WAITING, DDPI_SM_TO(MEMBER_RUNNING) | DDPI_SM_TO(MEMBER_OVER), DDPI_SM_INITIAL) \
    X(MEMBER, RUNNING, DDPI_SM_TO(MEMBER_FINISHED) | DDPI_SM_TO(MEMBER_ENDING), 0)            \
    X(MEMBER, FINISHED,                                                                       \
      DDPI_SM_TO(MEMBER_WAITING) | DDPI_SM_TO(MEMBER_RUNNING) | DDPI_SM_TO(MEMBER_OVER), 0)   \
    X(MEMBER, ENDING, DDPI_SM_TO(MEMBER_WAITING) | DDPI_SM_TO(MEMBER_OVER), 0)                \
    X(MEMBER, OVER, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(member, MEMBER_STATES);

/* How workers are ended. */
enum member_stop {
    MEMBER_STOP_ORDERLY, /* asked; they have the time of --shutdown-timeout */
    MEMBER_STOP_FAILED,  /* the generation has failed: the time of --failure-timeout */
    MEMBER_STOP_KILL     /* now */
};

/* What the agent does for it. Each may call back into the member. */
struct member_hooks {
    void *ctx;
    /* Start the workers of @seat: member_started() or member_failed() follow. */
    void (*start)(void *ctx, const struct ddp_round_seat *seat);
    /* End them, for the reason @why: member_cleared() follows. A later call may be more urgent. */
    void (*stop)(void *ctx, enum member_stop how, const char *why);
    /* Tell the server; what it does not get is told again with the next. */
    void (*publish)(void *ctx, const struct ddp_round_member *says);
    /* It is over, nothing runs: leave the job, and exit with @exit_code for the reason @why ("":
     * all ended well). */
    void (*over)(void *ctx, int exit_code, const char *why);
};

struct member {
    struct ddpi_sm sm;
    struct member_hooks hooks;
    struct ddp_round_member says; /* as published last */
    struct ddp_round_seat seat;   /* as given last */
    uint32_t lease_ms;            /* 0: there is no store that could lose us */
    uint64_t join_timeout_ms;     /* without a seat for so long: give up */
    uint64_t contact_ms;          /* the server keeps us for the lease from then on, at least */
    uint64_t waiting_since_ms;    /* without a seat */
    bool heard;                   /* of the server, ever */
    bool seat_void;               /* the server has given us up: @seat is of no account */
    char lost_why[DDP_ROUND_TEXT_SIZE]; /* what the store said last of that; "": nothing */
    bool leaving;                       /* OVER follows ENDING, WAITING */
    bool killing;                       /* ENDING: it cannot be more urgent */
    int exit_code;                      /* of OVER */
    char why[DDP_ROUND_TEXT_SIZE];
};

struct member_config {
    struct ddp_round_member says; /* name, address, nproc, node_rank, master_port, terms */
    uint32_t lease_ms;
    uint64_t join_timeout_ms;
};

void member_init(struct member *member, const struct member_config *config,
                 const struct member_hooks *hooks);

/* Say for the first time that we are here. */
void member_join(struct member *member, uint64_t now_ms);

/* From the server: struct ddp_round_hooks. */
void member_seat(struct member *member, const struct ddp_round_seat *seat, uint64_t now_ms);
void member_contact(struct member *member, uint64_t sent_ms, uint64_t now_ms);
void member_lost(struct member *member, const char *why, uint64_t now_ms);
/* The store is not there: what it said last does not count. */
void member_cut(struct member *member);

/* From the workers: all run; one has failed (told once more when its exit code is known); all have
 * ended well and nothing is left; after stop, nothing is left. */
void member_started(struct member *member);
void member_failed(struct member *member, const struct ddp_round_failure *failure);
void member_finished(struct member *member, uint64_t now_ms);
void member_cleared(struct member *member, uint64_t now_ms);

/* The user or the scheduler wants this node to leave: @exit_code, because of @why; how workers are
 * ended. Called again with KILL by somebody impatient. */
void member_leave(struct member *member, int exit_code, const char *why, enum member_stop how);

/* Something may be due; when the next time. UINT64_MAX: never. */
void member_tick(struct member *member, uint64_t now_ms);
uint64_t member_deadline(const struct member *member);

/* How long before the end of its lease a member takes itself for lost: the time it needs to kill
 * its workers. */
uint32_t member_margin_ms(uint32_t lease_ms);

#endif
