/*
 * life_slot.h - the page by which an agent sees a worker die before the kernel has taken its memory
 * apart: a slot for each worker of a node, in a memfd that the agent makes and workers inherit.
 *
 * A thread of the worker holds the slot's word as a robust futex: its thread id, with
 * FUTEX_WAITERS set, from the communicator's start to its end; 0 before and after. When the worker
 * dies, the first thing that the kernel does is to set FUTEX_OWNER_DIED there and to wake whoever
 * waits. The agent only looks at the words of workers that it runs: each of them may write to all.
 */
#ifndef DDPI_LIFE_SLOT_H
#define DDPI_LIFE_SLOT_H

#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

struct ddpi_life_slot {
    alignas(64) _Atomic uint32_t word; /* a cache line each */
};

/* No memfd but one of these has exactly these seals, so that another descriptor of that number is
 * not taken for it. */
#define DDPI_LIFE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Environment of a worker; "": there is none. */
#define DDPI_LIFE_FD_ENV   "DDPRUN_LIFE_FD"
#define DDPI_LIFE_SLOT_ENV "DDPRUN_LIFE_SLOT"

#endif
