/*
 * agent_signals.h - the signals that the agent handles: SIGCHLD, the end of the job, and signals
 * for the workers.
 */
#ifndef DAEMON_AGENT_SIGNALS_H
#define DAEMON_AGENT_SIGNALS_H

#include "agent_state.h"

/* Handle the signals of agent->config from now on; sigwatch_close() ends that. */
DDP_MUST_CHECK ddp_status agent_watch_signals(struct agent *agent, struct ddp_error *err);

/* All workers run: forward the signals that arrived while they were being started. */
void agent_forward_held_signals(struct agent *agent);

#endif
