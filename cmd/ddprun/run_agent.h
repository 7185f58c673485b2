/*
 * run_agent.h - runs the agent's process, from the split until the job is over.
 */
#ifndef CMD_RUN_AGENT_H
#define CMD_RUN_AGENT_H

#include "guard.h"
#include "plan.h"

/* Returns the exit code. *@ret_waiting: a thread is still blocked in a name look-up, a GPU driver
 * or the start of a program; only the end of the process can end it. */
int run_agent(struct plan *plan, const struct guard_agent *split, bool *ret_waiting);

#endif
