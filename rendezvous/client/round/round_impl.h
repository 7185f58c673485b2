/*
 * round_impl.h - the state of a member of the rounds, shared by handle.c (the handle) and
 * membership.c (its membership) and included by no other file.
 *
 * States:
 *   ABSENT   no session; the next publication opens one
 *   OPENING  a session is being opened
 *   JOINED   the session is open, and the member's keys are set with it
 *   LEFT     the member has left for good
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
    bool due;         /* its latest value has not been sent */
    uint64_t request; /* the request that is setting it; 0: none */
};

struct ddp_round {
    struct ddpi_sm sm;
    ddp_store_uv *store;
    struct ddp_round_hooks hooks;
    char job[DDPI_JOB_MAX + 1];
    uint32_t lease_ms;
    bool connected;
    bool closing;

    uint64_t id; /* this and the next four are valid while JOINED */
    struct ddp_store_session session;
    bool known;                 /* the server may have received a publication */
    uint64_t watch;             /* 0: not watching yet */
    struct ddp_round_seat seat; /* as last reported to the caller */
    uint64_t asked; /* request that opens the session, or watches or reads the seat; 0: none */

    bool has_old; /* an earlier membership may still represent running workers */
    struct ddp_store_session old;

    uint32_t rest_ms; /* pause after the latest refusal; 0 once accepted */
    bool resting;     /* the pause is running; no request is sent */

    struct part member;
    struct ddp_round_member says;
    struct part node;
    char *description;

    void (*pass)(void *data, const struct ddp_store_event *event); /* NULL: to nobody */
    void *pass_data;
    void (*left)(void *data);
    void *left_data;
    uint64_t leave_until_ms;
    void (*closed)(void *data);
    void *closed_data;
};

/* Send the next request. If that fails, the publication stays due. */
ddp_status ddpi_round_kick(ddp_round *round, struct ddp_error *err);
/* The same from a callback. */
void ddpi_round_go_on(ddp_round *round);
ddp_status ddpi_round_send_member(ddp_round *round, struct ddp_error *err);
/* Stop waiting for all pending requests. */
void ddpi_round_forget(ddp_round *round);
/* End the session of an earlier membership. */
void ddpi_round_end_old(ddp_round *round);
/* Report that the membership is lost, as its session has ended. */
void ddpi_round_lose_session(ddp_round *round, const char *why);
void ddpi_round_on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event);

#endif
