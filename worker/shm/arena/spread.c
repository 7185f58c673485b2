/*
 * spread.c - see spread.h. Owns nothing.
 */
#include "spread.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* Ranks on a processor beyond its capacity, the highest ones, fill the free places in order. */
int ddpi_spread_target(const uint16_t *at, uint32_t nranks, uint32_t rank, const cpu_set_t *allowed)
{
    uint32_t processors = (uint32_t)CPU_COUNT(allowed), surplus = 0, order = 0;
    uint32_t ranks_on[CPU_SETSIZE] = {0};
    bool moves = false;
    if (processors == 0 || nranks <= processors)
        return DDPI_SPREAD_NOWHERE;
    uint32_t capacity = (nranks + processors - 1) / processors;
    for (uint32_t i = 0; i < nranks; i++) {
        if (at[i] >= CPU_SETSIZE || ranks_on[at[i]]++ < capacity)
            continue;
        if (i == rank) {
            moves = true;
            order = surplus;
        }
        surplus++;
    }
    for (int processor = 0; moves && processor < CPU_SETSIZE; processor++) {
        if (!CPU_ISSET((size_t)processor, allowed) || ranks_on[processor] >= capacity)
            continue;
        if (order < capacity - ranks_on[processor])
            return processor;
        order -= capacity - ranks_on[processor];
    }
    return DDPI_SPREAD_NOWHERE;
}

/* The kernel remembers which processors a thread asked for, and those of its cpuset that are beyond
 * are lost for it. So one that may use all that are online asks for all that there may ever be. */
static void ask_for(const cpu_set_t *allowed)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    bool everywhere = CPU_COUNT(allowed) == sysconf(_SC_NPROCESSORS_ONLN);
    (void)sched_setaffinity(0, sizeof all, everywhere ? &all : allowed);
}

void ddpi_spread_move(int processor)
{
    cpu_set_t allowed, one, now;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        !CPU_ISSET((size_t)processor, &allowed) || sched_setaffinity(0, sizeof one, &one) != 0)
        return;
    if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &one))
        ask_for(&allowed); /* else another program has bound it meanwhile */
}
