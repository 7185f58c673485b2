/*
 * peer_message.h - messages between two ranks, of bytes in host memory, as the algorithm of a run.
 */
#ifndef DDPI_PEER_MESSAGE_H
#define DDPI_PEER_MESSAGE_H

#include "run.h"

/* Sends or receives, as the call says. */
extern const struct ddpi_algorithm ddpi_message_algorithm;

#endif
