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
