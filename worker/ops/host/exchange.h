/*
 * exchange.h - within one run: pieces to and from any number of ranks, all under way at once. For
 * algorithms whose ranks do not form a ring, such as all_to_all, gather and scatter. An algorithm
 * embeds one, and calls its functions from its own of the same names.
 *
 * Pieces are messages of a class of their own (DDPI_PIECE), so they match no receive of the
 * program: they match by the number of the call. Pieces between two ranks, in one direction, are
 * taken in the order in which they are listed.
 */
#ifndef DDPI_EXCHANGE_H
#define DDPI_EXCHANGE_H

#include "mailbox.h"

struct ddpi_exchange_piece {
    uint32_t peer;
    bool sends;
    uint8_t *bytes; /* only read, if it is sent */
    size_t len;     /* may be 0: a header goes all the same, so that a mismatch is noticed */
};

struct ddpi_exchange {
    struct ddpi_mail *mails; /* one for each piece */
    unsigned count;
};

/* Post the @count pieces, of which every rank says that it called @call: it is the same on both
 * sides, with class and tag. Anything but DDP_OK has made the communicator fail. Call
 * ddpi_exchange_end() in any case. */
ddp_status ddpi_exchange_begin(struct ddp_comm *comm, struct ddpi_exchange *exchange,
                               const struct ddpi_call *call,
                               const struct ddpi_exchange_piece *pieces, unsigned count);

/* Move what can be moved for @run, and count its bytes. */
ddp_status ddpi_exchange_advance(struct ddp_comm *comm, struct ddpi_exchange *exchange,
                                 struct ddpi_run *run, enum ddpi_movement *ret_movement);

/* What it cannot go on without, at most one need for each piece. */
unsigned ddpi_exchange_needs(const struct ddp_comm *comm, const struct ddpi_exchange *exchange,
                             struct ddpi_need *needs);

/* Whether the piece of @rank has not come yet. */
bool ddpi_exchange_lacks(const struct ddpi_exchange *exchange, uint32_t rank);

/* Free it; all zeros: there is nothing. */
void ddpi_exchange_end(struct ddp_comm *comm, struct ddpi_exchange *exchange);

#endif
