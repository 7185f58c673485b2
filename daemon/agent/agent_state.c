/*
 * agent_state.c - see agent_state.h. Starts, stops and reports nothing.
 */
#include "agent_state.h"

DDPI_SM_DEFINE(agent, AGENT_STATES);

void agent_set_cause(struct agent *agent, enum agent_cause cause)
{
    if (agent->cause == AGENT_CAUSE_NONE || cause == AGENT_CAUSE_GUARD ||
        cause == AGENT_CAUSE_STUCK)
        agent->cause = cause;
}

bool agent_is_up(const struct agent *agent)
{
    return agent->sm.state == AGENT_STARTING || agent->sm.state == AGENT_RUNNING;
}

bool agent_all_exited(const struct agent *agent)
{
    return agent->alive == 0 && !worker_starter_busy(&agent->starter);
}

void agent_signal_workers(struct agent *agent, int sig)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_forward(&agent->workers[i], sig);
}

void agent_leave(struct agent *agent, int exit_code, const char *why, enum member_stop how)
{
    agent->hooks.leave(agent->hooks.ctx, exit_code, why, how);
}
