/*
 * peer_message.h - messages between two ranks, of bytes in host memory: a whole message, or piece
 * by piece for another memory type.
 */
#ifndef DDPI_PEER_MESSAGE_H
#define DDPI_PEER_MESSAGE_H

#include "run.h"

/* A send, if the task has a send buffer, or else a receive. */
extern const struct ddpi_algorithm ddpi_message_algorithm;

/* Within a run that executes in the calling thread, and is a message: send or receive, as @call
 * says, its header and @len bytes at @bytes, over an edge that is made if there is none. @call has
 * its number. Anything but DDP_OK has made the communicator fail; DDP_E_MISMATCH: the two ranks
 * called different things. */
ddp_status ddpi_message_begin(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                              size_t len, struct ddpi_edge **ret_edge);

/* More bytes of the same message, in either direction. */
ddp_status ddpi_message_go_on(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                              size_t len, bool sends);

#endif
