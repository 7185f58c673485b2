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
 * the processors of all of them. A rank whose place is CPU_SETSIZE or more counts for none.
 * DDPI_SPREAD_NOWHERE: it stays, as all do that do not outnumber the processors. If each rank
 * computes this from the same places, and moves, the fullest processor has as few ranks as
 * possible. Pure.
 */
int ddpi_spread_target(const uint16_t *at, uint32_t nranks, uint32_t rank,
                       const cpu_set_t *allowed);

/*
 * Move the calling thread to @processor; nothing happens if it may not run there. It may use the
 * same processors afterwards, and the kernel may move it on at any time. A thread that may not use
 * all processors stays with those that it had, also when its cpuset gets more.
 */
void ddpi_spread_move(int processor);

#endif
