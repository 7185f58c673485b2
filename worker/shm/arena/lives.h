/*
 * lives.h - shows the ranks of a communicator on one machine at once when one of them dies.
 *
 * The kernel needs about 60 ms for each GiB of a dead process before its sockets end or its parent
 * learns of it. The first thing it does, though, is to mark the robust futexes that the process
 * held. So each rank has a word in shared memory that a thread of its process holds, and another
 * thread watches the word of the next rank that lives. Then the dead process gets a processor only
 * after the survivors (dying.h).
 *
 * An aid only: without it deaths are noticed by the end of a socket. Ranks that are threads of one
 * process die together and need none of this.
 */
#ifndef DDPI_LIVES_H
#define DDPI_LIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddpi_lives;

/* Bytes of shared memory for @nranks ranks; 0 at first. */
size_t ddpi_lives_size(uint32_t nranks);

/*
 * Start the threads of @rank, and wait until one holds its word in the shared memory @page.
 * @page is aligned to 64 bytes and stays mapped until ddpi_lives_leave(). When a rank has died, the
 * other thread calls @on_death(@arg), which must not block; a spare call is possible. Any rank may
 * write to @page: it can hide deaths and invent them, and nothing else.
 *
 * NULL: no memory, or no threads.
 */
struct ddpi_lives *ddpi_lives_join(void *page, uint32_t nranks, uint32_t rank,
                                   void (*on_death)(void *arg), void *arg);

/* The rank whose death was noticed first; false: none is known to have died. A rank that has called
 * exec counts as dead. Any thread; costs one load. */
bool ddpi_lives_first_death(const struct ddpi_lives *lives, uint32_t *ret_rank);

/* This rank leaves and is not dead. Also in a forked child, which has no such threads. NULL is
 * allowed. */
void ddpi_lives_leave(struct ddpi_lives *lives);

#endif
