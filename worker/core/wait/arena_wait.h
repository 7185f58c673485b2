/*
 * arena_wait.h - waiting for ranks in an arena (arena.h), and what a rank fails with when one does
 * not come.
 */
#ifndef DDPI_ARENA_WAIT_H
#define DDPI_ARENA_WAIT_H

#include "need.h"

/* Sleep until the operation of @need, in an arena, can go on; read messages of peers meanwhile.
 * Anything but DDP_OK has made the communicator fail. May return early. */
ddp_status ddpi_arena_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need);

/* The same, but do not sleep; *@ret_ready is whether it can go on. */
ddp_status ddpi_arena_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                            const struct ddpi_need *need, bool *ret_ready);

/* Fail if the previous rank carries its call, which should be @call, out over the ring. */
ddp_status ddpi_arena_check_ring(struct ddp_comm *comm, const struct ddpi_call *call);

#endif
