/*
 * edges.h - all edges of a communicator: the two of its ring, and those to other ranks, which are
 * made when the first of two ranks needs one.
 */
#ifndef DDPI_EDGES_H
#define DDPI_EDGES_H

#include "meeting.h"

#include <stdatomic.h>

enum { DDPI_NEXT, DDPI_PREV, DDPI_RING_EDGES };

struct ddpi_edges {
    struct ddpi_tls_engine *tls;             /* NULL: edges need none */
    struct ddpi_edge *ring[DDPI_RING_EDGES]; /* NULL in a world of one */
    /* By rank; NULL = not made. Only ever added to, as ddp_comm_abort() may be reading; the array
     * itself is NULL in a world of one. */
    _Atomic(struct ddpi_edge *) *peers;
    uint32_t world_size;
    int controls; /* of epoll: all control sockets and peers that have not ended, and the meeting */
    bool open;    /* others may come in */
    struct ddpi_meeting meeting; /* where they do */
};

/* Make @edges such that they can be finished; and ready for edges. On failure, too, finish them. */
void ddpi_edges_clear(struct ddpi_edges *edges);
ddp_status ddpi_edges_init(struct ddpi_edges *edges, uint32_t world_size, struct ddp_error *err);
void ddpi_edges_finish(struct ddpi_edges *edges);

/* Before they are finished in a child of the process that made them: what it shares with its parent
 * in the kernel is left as it is. */
void ddpi_edges_disown(struct ddpi_edges *edges);

/* Put @edge into its place, which is free; takes it over in any case. */
ddp_status ddpi_edges_set_ring(struct ddpi_edges *edges, unsigned which, struct ddpi_edge *edge,
                               struct ddp_error *err);

/* All cards are there: let others in from now on. */
ddp_status ddpi_edges_open(struct ddpi_edges *edges, struct ddp_error *err);

/* Send @memo to all peers but @from (may be NULL). Async-signal-safe. */
void ddpi_edges_tell(const struct ddpi_edges *edges, const struct ddpi_edge *from,
                     const struct ddpi_memo *memo);

/* Tell all peers, and those who wait at the door, that this rank leaves, and, unless @failed is
 * DDP_OK, of the failure before it. */
void ddpi_edges_farewell(struct ddpi_edges *edges, ddp_status failed, const char *cause);

/* The edge at place @index < ddpi_edges_places(), in no order that matters; NULL: it is not made.
 */
uint32_t ddpi_edges_places(const struct ddpi_edges *edges);
struct ddpi_edge *ddpi_edges_at(const struct ddpi_edges *edges, uint32_t index);

/* The peer of @edge is gone; nobody needs to be woken for it any more. */
void ddpi_edges_ignore(const struct ddpi_edges *edges, const struct ddpi_edge *edge);

/* When ddpi_edges_let_in() has something to do although no descriptor is readable. */
static inline uint64_t ddpi_edges_wake_ms(const struct ddpi_edges *edges)
{
    return edges->open ? ddpi_meeting_wake_ms(&edges->meeting) : UINT64_MAX;
}

/* Accept ranks that connect, and go on with the own attempt: what becomes an edge takes its place.
 */
ddp_status ddpi_edges_let_in(struct ddpi_edges *edges, struct ddp_error *err);

/* The edge to @rank; NULL: it is not made. */
struct ddpi_edge *ddpi_edges_peer(const struct ddpi_edges *edges, uint32_t rank);

#endif
