/*
 * edges.h - all edges of a communicator: the two of its ring, and those to other ranks. Each is
 * made when the first of two ranks needs it.
 */
#ifndef DDPI_EDGES_H
#define DDPI_EDGES_H

#include "meeting.h"
#include "nodes.h"

#include <stdatomic.h>

enum { DDPI_NEXT, DDPI_PREV, DDPI_RING_EDGES };

struct ddpi_edges {
    struct ddpi_tls_engine *tls; /* NULL: edges need none */
    /* NULL: not made. Only added to, as ddp_comm_abort() may be reading. Peers are by rank; that
     * array itself is NULL in a world of one. */
    _Atomic(struct ddpi_edge *) ring[DDPI_RING_EDGES];
    _Atomic(struct ddpi_edge *) *peers;
    uint32_t world_size;
    int controls; /* epoll descriptor of all live control sockets and peers, and of the meeting */
    bool open;    /* other ranks may connect */
    struct ddpi_nodes nodes;     /* the same on every rank, but for its own */
    struct ddpi_meeting meeting; /* where they connect */
};

/* Make @edges such that it can be finished; then ready for edges. Finish it after failures, too. */
void ddpi_edges_clear(struct ddpi_edges *edges);
ddp_status ddpi_edges_init(struct ddpi_edges *edges, uint32_t world_size, struct ddp_error *err);
void ddpi_edges_finish(struct ddpi_edges *edges);

/* Call it before ddpi_edges_finish() in a child: leaves alone what it shares with its parent in the
 * kernel. */
void ddpi_edges_disown(struct ddpi_edges *edges);

/* Put @edge into its place, which is free; takes it over in any case. */
ddp_status ddpi_edges_set_ring(struct ddpi_edges *edges, unsigned which, struct ddpi_edge *edge,
                               struct ddp_error *err);

/* All cards are known, some of them only since ddpi_edges_open(). */
void ddpi_edges_know_all(struct ddpi_edges *edges);

/* All cards are known, or at least those of the ring: let other ranks connect from now on. */
ddp_status ddpi_edges_open(struct ddpi_edges *edges, struct ddp_error *err);

/* Send @memo to all peers but @from (may be NULL). Async-signal-safe. */
void ddpi_edges_notify(const struct ddpi_edges *edges, const struct ddpi_edge *from,
                       const struct ddpi_memo *memo);

/* Tell all peers, and ranks that are connecting, that this rank leaves, and before that of its
 * @failure (NULL: none). */
void ddpi_edges_farewell(struct ddpi_edges *edges, const struct ddpi_memo *failure);

/* The edge at place @index < ddpi_edges_places(), in no particular order; NULL: not made. */
uint32_t ddpi_edges_places(const struct ddpi_edges *edges);
struct ddpi_edge *ddpi_edges_at(const struct ddpi_edges *edges, uint32_t index);

/* The peer of @edge is gone: stop watching it. */
void ddpi_edges_unwatch(const struct ddpi_edges *edges, const struct ddpi_edge *edge);

/* When ddpi_edges_let_in() has something to do although no descriptor is readable. */
static inline uint64_t ddpi_edges_wake_ms(const struct ddpi_edges *edges)
{
    return edges->open ? ddpi_meeting_wake_ms(&edges->meeting) : UINT64_MAX;
}

/* Accept ranks that connect, and go on with the own attempt: new edges take their places. */
ddp_status ddpi_edges_let_in(struct ddpi_edges *edges, struct ddp_error *err);

/* Put what has arrived at the meeting into its place; takes it over in any case. */
ddp_status ddpi_edges_add(struct ddpi_edges *edges, const struct ddpi_arrival *arrival,
                          struct ddp_error *err);

/* Whether both edges of the ring exist. */
bool ddpi_edges_have_ring(const struct ddpi_edges *edges);

/* Whether all ranks share memory; the same on every rank. */
static inline bool ddpi_edges_share_memory(const struct ddpi_edges *edges)
{
    return edges->nodes.count == 1;
}

/* The edge to @rank; NULL: it is not made. */
struct ddpi_edge *ddpi_edges_peer(const struct ddpi_edges *edges, uint32_t rank);

#endif
