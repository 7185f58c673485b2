/*
 * agent.h - the agent of one node: it starts the workers of a generation, watches them, ends them
 * when it is told to or when one fails, and reports the result. It does not decide whether a
 * generation runs: membership.h does.
 *
 *     IDLE --agent_run--> STARTING --all run--> RUNNING --agent_stop--> STOPPING (grace period)
 *      ^                     | |                   |                       ^ |  |
 *      |                     | +--agent_stop-------(-----------------------+ |  |
 *      |                     |                     | all exited             |  | main programs
 *      |                     |                     +--> SETTLING <----------(--+ ended
 *      |                     |        nothing left, or |                    | grace over
 *      |                     |               time over v                    |
 *      |                     +--one cannot start--> SWEEPING <--------------+
 *      |                                               | no process is left below the agent
 *      +--pipes empty, report written-- DRAINING <-----+
 *
 *     IDLE --agent_check--> CHECKING --its command has ended--> CLEARING --nothing is left--> IDLE
 *     IDLE --agent_end--> FLUSHING --output written--> DONE
 *
 * In SETTLING the processes that the workers have left may clean up; after a failure or an order
 * they are asked to end. In SWEEPING and CLEARING the agent kills every process below it, orphans
 * of workers included. A generation is over only when none of its processes runs and, where GPUs
 * are watched, their memory is free again.
 */
#ifndef DAEMON_AGENT_H
#define DAEMON_AGENT_H

#include "agent_state.h"

#include <ddprun/status.h>

/* Prepare @agent, which is zeroed, without starting anything. On failure, too, agent_close() and
 * agent_finish() follow. */
DDP_MUST_CHECK ddp_status agent_init(struct agent *agent, uv_loop_t *loop,
                                     const struct agent_config *config,
                                     const struct agent_hooks *hooks, struct ddp_error *err);

/* IDLE: start the workers of @seat. Returns at once; the loop turns while they start. */
void agent_run(struct agent *agent, const struct ddp_round_seat *seat);

/* This node waits for its place in the job: meanwhile import what workers need (--preload). */
void agent_wait(struct agent *agent);

/* IDLE: run the node check; checked() follows, never from within. */
void agent_check(struct agent *agent);

/* The result does not matter any more: checked() follows soon, maybe from within. */
void agent_end_check(struct agent *agent);

/* End the workers. While they are ending, a more urgent @how shortens their grace period. */
void agent_stop(struct agent *agent, enum member_stop how);

/* IDLE: done() follows when all output has been written. */
void agent_end(struct agent *agent, int exit_code);

/* A copy of the last @last records of the worker at @local_rank, of the latest generation. NULL: no
 * generation has begun here, or memory is short. A worker without a recorder has a copy without
 * records. The caller frees the *@ret_len bytes. */
struct ddpi_flight_header *agent_flight_copy(const struct agent *agent, uint32_t local_rank,
                                             uint32_t last, size_t *ret_len);

/* After done(): close the handles; agent_finish() once the loop has turned. */
void agent_close(struct agent *agent);
void agent_finish(struct agent *agent);

#endif
