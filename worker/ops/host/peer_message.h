/*
 * peer_message.h - messages between two ranks, of bytes in host memory: as the algorithm of a run,
 * or for a memory type that has its own way for the data and greets the peer first.
 */
#ifndef DDPI_PEER_MESSAGE_H
#define DDPI_PEER_MESSAGE_H

#include "run.h"

/* Sends or receives, as the call says. */
extern const struct ddpi_algorithm ddpi_message_algorithm;

/* Within a run that executes in the calling thread, and is a message: send or receive, as @call
 * says, @len bytes at @bytes in place of the data, over an edge that is made if there is none; NULL
 * if the message is to this rank itself, which keeps it until it is received. @call has its number;
 * DDP_ANY_RANK becomes the rank that has sent the message. Anything but DDP_OK has made the
 * communicator fail; DDP_E_MISMATCH: the two ranks called different things. */
ddp_status ddpi_message_begin(struct ddp_comm *comm, struct ddpi_call *call, void *bytes,
                              size_t len, struct ddpi_edge **ret_edge);

/* After that, between two ranks: the receiver sends, and the sender receives, an answer of @len
 * bytes. When it has come, the edge is free of messages in both directions, and carries what the
 * two ranks send each other until the run has ended. */
ddp_status ddpi_message_answer(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                               size_t len);

#endif
