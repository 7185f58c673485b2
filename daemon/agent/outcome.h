/*
 * outcome.h - the result of a generation: the report for the user, the exit code for the scheduler.
 */
#ifndef DAEMON_OUTCOME_H
#define DAEMON_OUTCOME_H

#include "agent_state.h"

/* Write to stderr why the generation ended; nothing if all workers exited with 0. */
void outcome_report(struct agent *agent);

/* The job has failed: copy the error file of the first worker that failed, if it left one, to
 * ddprun's own error file. */
void outcome_pass_on(struct agent *agent);

/* The failure that ends this generation, as told to the other nodes: that of agent->root, or of
 * the worker that could not be started. */
void outcome_failure(const struct agent *agent, struct ddp_round_failure *ret);

/* The same for @worker, which is dying: its exit code is not known yet. */
void outcome_dying(const struct agent *agent, const struct worker_proc *worker,
                   struct ddp_round_failure *ret);

/* Say how @worker has ended, if ddprun is to be verbose. */
void outcome_worker(struct agent *agent, const struct worker_proc *worker);

/* The exit code of a node that leaves because a process cannot be killed. */
int outcome_stuck_code(const struct agent *agent);

#endif
