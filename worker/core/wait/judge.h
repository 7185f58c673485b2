/*
 * judge.h - whether an operation has to fail because of a rank that it waits for: that one is gone
 * or dead, or has not come before the deadline. Nothing here sleeps. Anything but DDP_OK has made
 * the communicator fail.
 */
#ifndef DDPI_JUDGE_H
#define DDPI_JUDGE_H

#include "need.h"

/* Fail because the peer of @edge is gone, or because of the death of another one that may have been
 * the cause. Blocks like ddpi_verdict_culprit(). */
ddp_status ddpi_judge_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge);

/* Fail if an edge that @need needs has ended, or the time of @wait is up. *@wake_ms is when to look
 * again. */
ddp_status ddpi_judge_need(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need, uint64_t now, uint64_t *wake_ms);

/* Judge @need of the operation of @wait, which does not sleep: fail if the deadline has passed. If
 * bytes @move, more of a peer that is gone may be here; else fail for that, too. */
ddp_status ddpi_judge_awake(struct ddp_comm *comm, const struct ddpi_wait *wait,
                            const struct ddpi_need *need, bool move, uint64_t now);

/* The operation needs the peer of @edge: ask that one in time whether it waits as well. Fail if it
 * is gone, or if the deadline has passed. */
ddp_status ddpi_judge_peer(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge, uint64_t now);

/* A rank of this node that seems to have died, long before its sockets end (lives.h); false: there
 * is none. Costs one load. */
bool ddpi_judge_finds_death(const struct ddp_comm *comm, uint32_t *ret_rank);

/* Whether such a rank is being taken apart by the kernel: it has not called exec. */
bool ddpi_judge_is_dead(const struct ddp_comm *comm, uint32_t rank);

/* A rank of this node has died, and the kernel frees its memory before it ends its sockets, at 60
 * ms for each GiB: its edge is gone from now on. What it has sent before comes first, so call it
 * before looking for bytes. *@wake_ms is when to look again. */
ddp_status ddpi_judge_death(struct ddp_comm *comm, const struct ddpi_needs *needs, uint64_t now,
                            uint64_t *wake_ms);

#endif
