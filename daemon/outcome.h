/*
 * outcome.h - how a generation ended: the report for the person, the exit code for the scheduler.
 */
#ifndef DAEMON_OUTCOME_H
#define DAEMON_OUTCOME_H

#include "agent.h"

/* ddprun's own exit codes; a worker's code and 128+N for its signal come beside them. */
enum { EXIT_USAGE = 2, EXIT_CONFIG = 78 };

/* Say on stderr why the generation ended; nothing when all went well. */
void outcome_report(struct agent *agent);

/* The failure that ends this generation, for the rest of the job: of agent->root, or of the worker
 * that could not be started. */
void outcome_failure(const struct agent *agent, struct ddp_round_failure *ret);

/* The exit code of a node that has to leave because something of it cannot be killed. */
int outcome_stuck_code(const struct agent *agent);

#endif
