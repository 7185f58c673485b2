/*
 * seek.h - the edges that an operation needs and that do not stand yet: this rank connects, or
 * accepts, as part of the operation. Nothing here sleeps.
 */
#ifndef DDPI_SEEK_H
#define DDPI_SEEK_H

#include "need.h"

/* Accept ranks that connect, and go on with the attempt in progress. Anything but DDP_OK has made
 * the communicator fail. */
ddp_status ddpi_seek_let_in(struct ddp_comm *comm, const struct ddpi_wait *wait);

/* The edge to @peer, which is another rank; NULL: it is being made, as part of the operation that
 * @wait describes, or will be when the attempt in progress has ended. The peer accepts in every
 * operation. Does not block. */
ddp_status ddpi_seek_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge);

/* The same for both edges of the ring, and the memory that its algorithms use. */
ddp_status ddpi_seek_ring(struct ddp_comm *comm, const struct ddpi_wait *wait, bool *ret_stands);

/* What to wait for after ddpi_seek_edge() or ddpi_seek_ring() has found that one is missing: bytes
 * of this edge never come, but whatever becomes of the attempt wakes the rank. */
struct ddpi_edge *ddpi_sought_edge(const struct ddp_comm *comm);

#endif
