/*
 * outcome.h - how a generation ended: the report for the person, the exit code for the scheduler.
 */
#ifndef DAEMON_OUTCOME_H
#define DAEMON_OUTCOME_H

#include "agent_state.h"

/* ddprun's own exit codes; a worker's code and 128+N for its signal come beside them. */
enum { EXIT_USAGE = 2, EXIT_CONFIG = 78 };

/* Say on stderr why the generation ended; nothing when all went well. */
void outcome_report(struct agent *agent);

/* The job has failed: leave the error that the first worker to fail has recorded, if it has, where
 * whoever started ddprun looks for it. */
void outcome_pass_on(struct agent *agent);

/* The failure that ends this generation, for the rest of the job: of agent->root, or of the worker
 * that could not be started. */
void outcome_failure(const struct agent *agent, struct ddp_round_failure *ret);

/* The same of @worker, which is dying: how it will have ended is not known yet. */
void outcome_dying(const struct agent *agent, const struct worker_proc *worker,
                   struct ddp_round_failure *ret);

/* The exit code of a node that has to leave because something of it cannot be killed. */
int outcome_stuck_code(const struct agent *agent);

#endif
