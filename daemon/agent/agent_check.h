/*
 * agent_check.h - the check of the node: from agent_check() to the hook checked(), in which nothing
 * is left of it.
 */
#ifndef DAEMON_AGENT_CHECK_H
#define DAEMON_AGENT_CHECK_H

#include "agent_state.h"

DDP_MUST_CHECK ddp_status agent_open_check(struct agent *agent, struct ddp_error *err);

/* IDLE: run the node check; checked() follows, never from within. */
void agent_check(struct agent *agent);

/* The result does not matter any more: checked() follows soon, maybe from within. */
void agent_end_check(struct agent *agent);

/* The steps out of CHECKING and CLEARING. */
bool agent_clear_when_checked(struct agent *agent);
bool agent_finish_check(struct agent *agent);

#endif
