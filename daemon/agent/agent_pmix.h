/*
 * agent_pmix.h - what the PMIx server of Open MPI's programs (daemon/pmi) gets from the agent.
 */
#ifndef DAEMON_AGENT_PMIX_H
#define DAEMON_AGENT_PMIX_H

#include "agent_state.h"

DDP_MUST_CHECK ddp_status agent_open_pmix(struct agent *agent, struct ddp_error *err);

/* A generation begins: the port for its workers; 0: there is none. */
uint16_t agent_open_pmix_port(struct agent *agent);

#endif
