/*
 * agent_stop.h - the end of a generation, step by step: STOPPING, SWEEPING, DRAINING, and of the
 * agent: FLUSHING, DONE.
 */
#ifndef DAEMON_AGENT_STOP_H
#define DAEMON_AGENT_STOP_H

#include "agent_state.h"

/* End the workers. While they are ending, a more urgent @how shortens their grace period. */
void agent_stop(struct agent *agent, enum member_stop how);

/* IDLE: done() follows when all output has been written. */
void agent_end(struct agent *agent, int exit_code);

/* Take every step that is possible now. To be called after each event that may allow one. */
void agent_advance(struct agent *agent);

/* Enter SWEEPING from STARTING: a worker could not be started. */
void agent_abort_start(struct agent *agent);

/* SIGKILL every process below the agent. */
void agent_kill_everything(struct agent *agent);

/* The signal that asks workers to stop. */
int agent_stop_signal(const struct agent *agent);

/* Drop output that nobody reads, so that it cannot hold up the agent. */
void agent_drop_output(struct agent *agent);

/* Hook of parts that start a process: its pid is known now, so children that ended meanwhile can be
 * waited for. Takes the next step. */
void agent_collect_late(void *ctx);

#endif
