/*
 * round_impl.h - what the files of a member's side of the rounds share: handle.c (the
 * handle) and membership.c (its membership). Nobody else includes it.
 *
 * States:
 *   ABSENT   nothing was published since the last membership ended
 *   OPENING  a session is being opened
 *   JOINED   it is there, and the member's keys are set by it
 *   LEFT     for good
 */
#ifndef DDPI_ROUND_IMPL_H
#define DDPI_ROUND_IMPL_H

#include "parse.h"
#include "proof.h"
#include "sm.h"

#include <ddprun/round.h>

#define ROUND_STATES(X)                                                                   \
    X(ROUND, ABSENT, DDPI_SM_TO(ROUND_OPENING) | DDPI_SM_TO(ROUND_LEFT), DDPI_SM_INITIAL) \
    X(ROUND, OPENING,                                                                     \
      DDPI_SM_TO(ROUND_ABSENT) | DDPI_SM_TO(ROUND_JOINED) | DDPI_SM_TO(ROUND_LEFT), 0)    \
    X(ROUND, JOINED, DDPI_SM_TO(ROUND_ABSENT) | DDPI_SM_TO(ROUND_LEFT), 0)                \
    X(ROUND, LEFT, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(ddpi_round_client, ROUND_STATES);
/* One of the member's keys. */
struct part {
    const char *kind;
    bool due;         /* it has a value that has not been sent */
    uint64_t request; /* by which the latest is being set; 0: none is */
};

struct ddp_round {
    struct ddpi_sm sm;
    ddp_store_uv *store;
    struct ddp_round_hooks hooks;
    char job[DDPI_JOB_MAX + 1];
    char host[DDPI_HOST_MAX]; /* of the store */
    uint32_t lease_ms;
    bool connected;
    bool closing;

    uint64_t id; /* these five while it is JOINED */
    struct ddp_store_session session;
    bool known;                 /* the server may have taken what was published */
    uint64_t watch;             /* 0: it has not begun */
    struct ddp_round_seat seat; /* as told last */
    uint64_t asked; /* OPENING: the session; JOINED: the watch, or a look at the seat; 0: nothing */

    bool has_old; /* a membership before this one may still stand for workers that run */
    struct ddp_store_session old;

    uint32_t rest_ms; /* after the latest refusal; 0: it has been taken since */
    bool resting;     /* nothing is asked until that is over */

    struct part member;
    struct ddp_round_member says;
    struct part node;
    char *description;

    void (*left)(void *data);
    void *left_data;
    uint64_t leave_until_ms;
    void (*closed)(void *data);
    void *closed_data;
};

/* Ask for what comes next; if that fails, it is due all the same. */
ddp_status ddpi_round_kick(ddp_round *round, struct ddp_error *err);
/* The same from a callback. */
void ddpi_round_go_on(ddp_round *round);
ddp_status ddpi_round_send_member(ddp_round *round, struct ddp_error *err);
/* Nothing that was asked is waited for any more. */
void ddpi_round_forget(ddp_round *round);
/* The session of an earlier membership is not needed any more. */
void ddpi_round_end_old(ddp_round *round);
/* The session has ended. */
void ddpi_round_lose_session(ddp_round *round, const char *why);
void ddpi_round_on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event);

#endif
