/*
 * spread.c - see spread.h. Owns nothing.
 */
#include "spread.h"

#include <stdbool.h>

/* How many ranks may be on each processor. */
static uint32_t capacity_of(uint32_t nranks, const cpu_set_t *allowed)
{
    uint32_t processors = (uint32_t)CPU_COUNT(allowed);
    return processors == 0 ? nranks : (nranks + processors - 1) / processors;
}

/* Ranks on a processor beyond its capacity, the highest ones, fill the free places in order. */
int ddpi_spread_target(const uint16_t *at, uint32_t nranks, uint32_t rank, const cpu_set_t *allowed)
{
    uint32_t capacity = capacity_of(nranks, allowed), surplus = 0, order = 0;
    uint32_t ranks_on[CPU_SETSIZE] = {0};
    bool moves = false;
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

void ddpi_spread_move(int processor)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
        CPU_ISSET((size_t)processor, &allowed) && sched_setaffinity(0, sizeof one, &one) == 0)
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
}
