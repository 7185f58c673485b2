/*
 * wait.h - the sleep of a rank that waits for others.
 */
#ifndef DDPI_WAIT_H
#define DDPI_WAIT_H

#include "need.h"

/* Sleep until one of @needs may be met; meanwhile read messages of all peers. Anything but DDP_OK
 * has made the communicator fail. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *needs, unsigned count);

/* Like ddpi_seek_edge(), but wait until there is an edge. */
ddp_status ddpi_wait_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge);

/* Tell the processor that this thread is in a busy loop. */
static inline void ddpi_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
