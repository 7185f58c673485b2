/*
 * agent_flight.h - what the workers of an agent have recorded of their operations.
 */
#ifndef DAEMON_AGENT_FLIGHT_H
#define DAEMON_AGENT_FLIGHT_H

#include "agent_state.h"
#include "flight_memory.h"

/* A copy of the last @last records of the worker at @local_rank, of the latest generation. NULL: no
 * generation has begun here, or memory is short. A worker without a recorder has a copy without
 * records. The caller frees the *@ret_len bytes. */
struct ddpi_flight_header *agent_flight_copy(const struct agent *agent, uint32_t local_rank,
                                             uint32_t last, size_t *ret_len);

#endif
