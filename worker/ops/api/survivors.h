/*
 * survivors.h - the survivors of a communicator find each other over its listeners, although it
 * may have failed: the lowest rank that lives leads, and every other one connects to it.
 *
 * Each rank of the old communicator has a place. Whether a rank lives is asked of the kernel: a
 * connection to its listener is refused, or its process has ended.
 */
#ifndef DDPI_SURVIVORS_H
#define DDPI_SURVIVORS_H

#include "communicator.h"

struct ddpi_place {
    bool excluded;   /* by the caller */
    bool gone;       /* it has died, or has destroyed the communicator */
    bool came;       /* its card is here */
    bool stands;     /* its new communicator works */
    uint32_t digest; /* of the ranks that it excludes */
    uint8_t card[DDPI_CARD_SLOT];
    struct ddpi_edge *edge; /* messages between it and this rank; NULL: none */
    int watch;              /* a connection that shows whether it lives; -1: none */
    bool connecting;
    struct ddpi_process process; /* of the watched rank, on this machine */
};

struct ddpi_survivors {
    struct ddp_comm *comm;     /* the old one */
    struct ddpi_place *places; /* by rank */
    struct pollfd *fds;        /* room for what a turn waits for */
    uint32_t timeout_ms;
    uint64_t deadline_ms;
    uint32_t watched; /* all ranks that have not come are watched: this one leads */

    /* A message has come from the rank at @place. Anything but DDP_OK ends the turn. */
    ddp_status (*take)(struct ddpi_survivors *survivors, struct ddpi_place *place,
                       const struct ddpi_memo *memo, struct ddp_error *err);
    void *taker; /* for take() */
};

ddp_status ddpi_survivors_init(struct ddpi_survivors *survivors, struct ddp_comm *comm,
                               uint32_t timeout_ms, struct ddp_error *err);
void ddpi_survivors_finish(struct ddpi_survivors *survivors);

/* The lowest rank that is neither gone nor excluded. */
uint32_t ddpi_survivors_leader(const struct ddpi_survivors *survivors);

/* Begin to connect to @rank. */
ddp_status ddpi_survivors_ask(struct ddpi_survivors *survivors, uint32_t rank,
                              struct ddp_error *err);

/* Find out which of the ranks that have not come live, now and in every turn. */
void ddpi_survivors_watch(struct ddpi_survivors *survivors);

/* Sleep until something happens, at most until the deadline, and handle it: connections, messages,
 * ends of ranks. */
ddp_status ddpi_survivors_turn(struct ddpi_survivors *survivors, struct ddp_error *err);

static inline void ddpi_survivors_send(struct ddpi_place *place, const struct ddpi_memo *memo)
{
    if (place->edge != NULL)
        ddpi_control_send(&place->edge->control, memo);
}

/* "rank 2 (pid 17 on a)" of the old communicator. */
void ddpi_survivors_name(const struct ddpi_survivors *survivors, uint32_t rank,
                         char name[DDPI_PEER_NAME]);

#endif
