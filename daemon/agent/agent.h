/*
 * agent.h - the agent of one node: it starts the workers of a generation, watches them, ends them
 * when it is told to or when one fails, and reports the result. It does not decide whether a
 * generation runs: membership.h does.
 *
 *     IDLE --agent_run--> STARTING --all run--> RUNNING --agent_stop--> STOPPING (grace period)
 *      ^                     | |                   |                       ^ | exited, grace over
 *      |                     | +--agent_stop-------(-----------------------+ |
 *      |                     |                     +--all exited             |
 *      |                     +--one cannot start---+--> SWEEPING <-----------+
 *      |                                                   | no process is left below the agent
 *      +--pipes empty, report written-- DRAINING <---------+
 *
 *     IDLE --agent_end--> FLUSHING --output written--> DONE
 *
 * In SWEEPING the agent kills every process below it, orphans of workers included. A generation is
 * over only when none of its processes runs and, where GPUs are watched, their memory is free
 * again.
 */
#ifndef DAEMON_AGENT_H
#define DAEMON_AGENT_H

#include "agent_state.h"

#include <ddprun/status.h>

/* Prepare, without starting anything. On failure, too, agent_close() and agent_finish() follow. */
DDP_MUST_CHECK ddp_status agent_init(struct agent *agent, uv_loop_t *loop,
                                     const struct agent_config *config,
                                     const struct agent_hooks *hooks, struct ddp_error *err);

/* IDLE: start the workers of @seat. Returns at once; the loop turns while they start. */
void agent_run(struct agent *agent, const struct ddp_round_seat *seat);

/* End the workers. While they are ending, a more urgent @how shortens their grace period. */
void agent_stop(struct agent *agent, enum member_stop how);

/* IDLE: done() follows when all output has been written. */
void agent_end(struct agent *agent, int exit_code);

/* After done(): close the handles; agent_finish() once the loop has turned. */
void agent_close(struct agent *agent);
void agent_finish(struct agent *agent);

#endif
