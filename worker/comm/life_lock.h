/*
 * life_lock.h - has the agent that started this process see at once when it dies (life_slot.h). A
 * help only: where it cannot be, the agent hears of the death when all of the process is gone.
 */
#ifndef DDPI_LIFE_LOCK_H
#define DDPI_LIFE_LOCK_H

#include <stdint.h>

struct ddpi_life;

/* Hold @slot of the page behind @fd with a thread of its own, until it is released or the process
 * dies. NULL: there is no such page, or no such slot, or there is no memory for it. */
struct ddpi_life *ddpi_life_hold(int fd, uint32_t slot);

/* Let go of it in order. Also in a child that was forked, which does not hold it. NULL is allowed.
 */
void ddpi_life_release(struct ddpi_life *life);

#endif
