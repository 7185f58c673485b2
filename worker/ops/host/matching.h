/*
 * matching.h - which receive takes which message. Pure: lists of what the caller owns, without I/O.
 *
 * The order is MPI's: of messages alike the one that came first is taken, by the receive that was
 * called first. A message that no receive wants yet waits; one with another tag may overtake it.
 */
#ifndef DDPI_MATCHING_H
#define DDPI_MATCHING_H

#include "call_header.h"
#include "list.h"

/* What tells messages to a rank apart. */
struct ddpi_envelope {
    enum ddpi_message_class message_class;
    uint32_t peer; /* who sends; DDP_ANY_RANK in a receive that takes user messages of any rank */
    uint32_t tag;
    uint64_t seq; /* the number of the collective of which it is a piece; else 0 */
};

/* A receive, or a message that has arrived, at least in part; in one list at most. */
struct ddpi_match {
    struct ddpi_list link;
    struct ddpi_envelope envelope;
};

struct ddpi_matching {
    struct ddpi_list receives; /* that wait for a message, in the order of the calls */
    struct ddpi_list messages; /* that wait for a receive, in the order in which they began */
};

void ddpi_matching_init(struct ddpi_matching *matching);

/* The envelope of a message that @call sends, of rank @sender. */
struct ddpi_envelope ddpi_envelope_of(const struct ddpi_call *call, uint32_t sender);

/* Remove the receive that takes a message with @envelope; or the message that a receive with
 * @envelope takes. NULL: there is none, so let the other one wait. */
struct ddpi_match *ddpi_matching_take_receive(struct ddpi_matching *matching,
                                              const struct ddpi_envelope *envelope);
struct ddpi_match *ddpi_matching_take_message(struct ddpi_matching *matching,
                                              const struct ddpi_envelope *envelope);

/* Let @match wait, which the caller keeps. */
void ddpi_matching_add_receive(struct ddpi_matching *matching, struct ddpi_match *match);
void ddpi_matching_add_message(struct ddpi_matching *matching, struct ddpi_match *match);

#endif
