/*
 * peer_message.h - messages between two ranks: a whole one in memory of the host, or piece by piece
 * for the device's engine.
 */
#ifndef DDPI_PEER_MESSAGE_H
#define DDPI_PEER_MESSAGE_H

#include "communicator.h"

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
