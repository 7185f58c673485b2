/*
 * notices.h - what peers say on their control sockets: that they have failed, or left, or wait as
 * well. If a peer reports a failure, the communicator fails; nothing else follows from reading.
 */
#ifndef DDPI_NOTICES_H
#define DDPI_NOTICES_H

#include "need.h"

/* Read all notices of the peer of @edge. A peer that asks whether this rank waits is answered, and
 * the peers of @needs (NULL: none) are asked in turn. Anything but DDP_OK has made the communicator
 * fail. */
ddp_status ddpi_notices_read(struct ddp_comm *comm, struct ddpi_edge *edge,
                             const struct ddpi_needs *needs);

/* Those of all peers: after a failure, too, more notices of it may come. */
ddp_status ddpi_notices_read_all(struct ddp_comm *comm);

/* Read those that are here, and accept ranks that connect, without sleeping. */
ddp_status ddpi_notices_read_ready(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                   const struct ddpi_needs *needs);

/* Whether this rank may succeed in the operation of @wait: no rank has failed in it, as far as
 * others have said until now. */
bool ddpi_notices_may_succeed(struct ddp_comm *comm, const struct ddpi_wait *wait);

#endif
