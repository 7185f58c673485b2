/*
 * life_lock.h - shows the agent that started this process at once when the process dies
 * (life_slot.h), and ends the process when agent and guard can no longer do it in time. An aid
 * only: without it the agent learns of the death when the process has ended completely, and a
 * process whose agent and guard are stopped together runs on.
 */
#ifndef DDPI_LIFE_LOCK_H
#define DDPI_LIFE_LOCK_H

#include <stdint.h>

struct ddpi_life;

/* Hold @slot of the page at @fd with a thread, until release or the death of the process. If the
 * process holds it already, the thread waits for its turn. NULL: no such page or slot, or no
 * memory. */
struct ddpi_life *ddpi_life_hold(int fd, uint32_t slot);

/* For one more communicator, which releases it as well. NULL is allowed. */
struct ddpi_life *ddpi_life_share(struct ddpi_life *life);

/* Release it, with the slot if nobody shares it any more; also in a forked child, which does not
 * hold it. NULL is allowed. */
void ddpi_life_release(struct ddpi_life *life);

#endif
