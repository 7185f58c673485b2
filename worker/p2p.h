/*
 * p2p.h - messages between two ranks, for the device engine: what p2p.c does for memory of the
 * host, a piece at a time.
 */
#ifndef DDPI_P2P_H
#define DDPI_P2P_H

#include "comm_impl.h"

/*
 * The message of @call, which has its number: the sender's header and @len bytes at @bytes, sent or
 * received as @call says, over an edge that is made if need be. Anything but DDP_OK has made the
 * communicator fail; DDP_E_MISMATCH: the two called something else.
 */
ddp_status ddpi_p2p_open(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                         size_t len, struct ddpi_edge **ret_edge);

/* More bytes of the same message, in either direction. */
ddp_status ddpi_p2p_pass(struct ddp_comm *comm, const struct ddpi_call *call,
                         struct ddpi_edge *edge, void *bytes, size_t len, bool sends);

/* The number of the next message to or from a rank, as @call says; and that it has been given. */
uint64_t ddpi_p2p_next(const struct ddp_comm *comm, const struct ddpi_call *call);
void ddpi_p2p_count(struct ddp_comm *comm, const struct ddpi_call *call);

#endif
