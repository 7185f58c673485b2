/*
 * agent_flight.c - see agent.h. Owns nothing.
 */
#include "agent.h"

#include "mem.h"

#include <stdio.h>

static struct ddpi_flight_place place_of(const struct agent *agent, uint32_t local_rank)
{
    const struct worker_proc *worker = &agent->workers[local_rank];
    bool over = worker->sm.state == WORKER_EXITED;
    struct ddpi_flight_place place = {.generation = agent->seat.generation,
                                      .rank = worker->rank,
                                      .world_size = agent->seat.world_size,
                                      .node_rank = agent->seat.node_rank,
                                      .local_rank = local_rank,
                                      .pid = (uint32_t)worker->pid,
                                      .process = over ? DDPI_FLIGHT_ENDED
                                                 : worker_proc_is_stopped(worker)
                                                     ? DDPI_FLIGHT_STOPPED
                                                     : DDPI_FLIGHT_RUNS,
                                      .exit_code = over ? worker_proc_exit_code(worker) : 0};
    snprintf(place.host, sizeof place.host, "%s", agent->config->host);
    return place;
}

struct ddpi_flight_header *agent_flight_copy(const struct agent *agent, uint32_t local_rank,
                                             uint32_t last, size_t *ret_len)
{
    if (agent->attempts == 0)
        return NULL;
    const struct ddpi_flight_place place = place_of(agent, local_rank);
    return flight_memory_copy(&agent->starter.flight, local_rank, last, &place, ret_len);
}
