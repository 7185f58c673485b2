/*
 * spread.h - where ranks outnumber the processors, divides them evenly among those.
 *
 * Ranks that wait for each other let others run, so to the kernel all processors seem busy, and it
 * evens out slowly that three ranks take turns on one of two processors and the fourth has the
 * other. Each operation then takes as long as the fuller one needs.
 */
#ifndef DDPI_SPREAD_H
#define DDPI_SPREAD_H

#include <sched.h>
#include <stdint.h>

enum { DDPI_SPREAD_NOWHERE = -1 };

/*
 * Where rank @rank is to move: of @nranks ranks each is on processor @at[rank], and @allowed are
 * the processors of all of them. DDPI_SPREAD_NOWHERE: it stays. If each rank computes this from the
 * same places, and moves, the fullest processor has as few ranks as possible. Pure.
 */
int ddpi_spread_target(const uint16_t *at, uint32_t nranks, uint32_t rank,
                       const cpu_set_t *allowed);

/* Move the calling thread to @processor. The kernel may move it on at any time: which processors
 * the thread may use stays as it is, and nothing happens if @processor is not one of them. */
void ddpi_spread_move(int processor);

#endif
