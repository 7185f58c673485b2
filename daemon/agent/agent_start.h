/*
 * agent_start.h - the start of a generation: from agent_run() to RUNNING.
 */
#ifndef DAEMON_AGENT_START_H
#define DAEMON_AGENT_START_H

#include "agent_state.h"

/* IDLE: start the workers of @seat. Returns at once; the loop turns while they start. */
void agent_run(struct agent *agent, const struct ddp_round_seat *seat);

/* This node waits for its place in the job: meanwhile import what workers need (--preload). */
void agent_wait(struct agent *agent);

/* worker_starter_hooks. */
void agent_on_worker_started(void *ctx, struct worker_proc *worker);
void agent_on_starter_over(void *ctx, ddp_status status);

#endif
