/*
 * life_slot.h - a shared page in which an agent sees a worker die before the kernel has freed the
 * worker's memory: one slot per worker of a node, in a memfd that the agent creates and the workers
 * inherit.
 *
 * A thread of the worker holds the slot's word as a robust futex: while the process has a
 * communicator the word is the thread id with FUTEX_WAITERS set, otherwise 0. When the worker dies,
 * the kernel first sets FUTEX_OWNER_DIED there and wakes a waiter. The agent does not trust the
 * page: it reads only the words of workers that it runs, as each worker can write to all.
 *
 * The other way round a worker sees there until when it may run. The agent moves that time on while
 * the store answers it; when it has come, agent and guard must both have been stopped, as each of
 * them would have ended the worker before. So the thread ends the process, as they would have.
 */
#ifndef DDPI_LIFE_SLOT_H
#define DDPI_LIFE_SLOT_H

#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

struct ddpi_life_slot {
    alignas(64) _Atomic uint32_t word; /* a cache line each */
    _Atomic uint64_t fence_at_ms;      /* of CLOCK_MONOTONIC; 0: never */
};

/* The seals identify the memfd, so that a worker does not mistake another descriptor for it. */
#define DDPI_LIFE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Environment variables of a worker; "" without a slot. */
#define DDPI_LIFE_FD_ENV   "DDPRUN_LIFE_FD"
#define DDPI_LIFE_SLOT_ENV "DDPRUN_LIFE_SLOT"

#endif
