/*
 * edges.c - all edges of a communicator. Owns them, the meeting through which new ones come, and
 * the epoll descriptor that watches their control sockets.
 */
#include "edges.h"

#include "attempt.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "sockets.h"
#include "tls.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

void ddpi_edges_clear(struct ddpi_edges *edges)
{
    *edges = (struct ddpi_edges){.controls = -1};
    ddpi_meeting_clear(&edges->meeting);
}

ddp_status ddpi_edges_init(struct ddpi_edges *edges, uint32_t world_size, struct ddp_error *err)
{
    edges->world_size = world_size;
    if (world_size == 1)
        return DDP_OK;
    edges->peers = ddpi_calloc(world_size, sizeof *edges->peers);
    edges->nodes.firsts = ddpi_calloc((size_t)world_size + 1, sizeof *edges->nodes.firsts);
    if (edges->peers == NULL || edges->nodes.firsts == NULL)
        return ddpi_error_nomem(err, (unsigned long long)world_size * sizeof *edges->peers);
    edges->controls = epoll_create1(EPOLL_CLOEXEC);
    return edges->controls >= 0 ? DDP_OK : ddpi_error_sys(err, errno, "make an epoll descriptor");
}

struct ddpi_edge *ddpi_edges_peer(const struct ddpi_edges *edges, uint32_t rank)
{
    return edges->peers != NULL ? atomic_load(&edges->peers[rank]) : NULL;
}

/* A child shares both epoll descriptors with its parent: what it removed there would be removed for
 * both. */
void ddpi_edges_disown(struct ddpi_edges *edges)
{
    ddpi_close_fd(&edges->controls);
    ddpi_close_fd(&edges->meeting.events);
}

uint32_t ddpi_edges_places(const struct ddpi_edges *edges)
{
    return DDPI_RING_EDGES + edges->world_size;
}

struct ddpi_edge *ddpi_edges_at(const struct ddpi_edges *edges, uint32_t index)
{
    return index < DDPI_RING_EDGES ? atomic_load(&edges->ring[index])
                                   : ddpi_edges_peer(edges, index - DDPI_RING_EDGES);
}

void ddpi_edges_finish(struct ddpi_edges *edges)
{
    ddpi_meeting_finish(&edges->meeting);
    for (uint32_t i = 0; i < ddpi_edges_places(edges); i++)
        ddpi_edge_destroy(ddpi_edges_at(edges, i));
    ddpi_close_fd(&edges->controls);
    ddpi_tls_engine_destroy(edges->tls);
    ddpi_free(edges->peers);
    ddpi_free(edges->nodes.firsts);
    ddpi_edges_clear(edges);
}

/* Tell @edge if its peer is on this machine; the card of the peer may come later. */
static void edge_place(const struct ddpi_edges *edges, struct ddpi_edge *edge)
{
    struct ddpi_card card;
    if (edge != NULL && edge->ops->stay_on_machine != NULL &&
        ddpi_card_get(ddpi_meeting_slot(&edges->meeting, edge->peer), &card) &&
        ddpi_card_same_machine(&edges->meeting.card, &card))
        edge->ops->stay_on_machine(edge);
}

/* Watch @fd; a negative one is none. */
static bool edge_watch_fd(const struct ddpi_edges *edges, struct ddpi_edge *edge, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = edge};
    return fd < 0 || epoll_ctl(edges->controls, EPOLL_CTL_ADD, fd, &event) == 0;
}

static ddp_status edge_watch(const struct ddpi_edges *edges, struct ddpi_edge *edge,
                             struct ddp_error *err)
{
    if (edge->process.over)
        edge->gone_ms = ddpi_monotonic_ms();
    if (edge_watch_fd(edges, edge, edge->control.fd) &&
        edge_watch_fd(edges, edge, edge->process.pidfd))
        return DDP_OK;
    ddp_status status = ddpi_error_sys(err, errno, "watch the connection to %s", edge->peer_name);
    ddpi_edge_destroy(edge);
    return status;
}

void ddpi_edges_unwatch(const struct ddpi_edges *edges, const struct ddpi_edge *edge)
{
    epoll_ctl(edges->controls, EPOLL_CTL_DEL, edge->control.fd, NULL);
    epoll_ctl(edges->controls, EPOLL_CTL_DEL, edge->process.pidfd, NULL);
}

ddp_status ddpi_edges_set_ring(struct ddpi_edges *edges, unsigned which, struct ddpi_edge *edge,
                               struct ddp_error *err)
{
    ddp_status status = edge_watch(edges, edge, err);
    if (status == DDP_OK)
        atomic_store(&edges->ring[which], edge);
    return status;
}

bool ddpi_edges_have_ring(const struct ddpi_edges *edges)
{
    return atomic_load(&edges->ring[DDPI_NEXT]) != NULL &&
           atomic_load(&edges->ring[DDPI_PREV]) != NULL;
}

static bool shares_with_previous(const void *ctx, uint32_t rank)
{
    const struct ddpi_meeting *meeting = ctx;
    struct ddpi_card card, previous;
    return ddpi_card_get(ddpi_meeting_slot(meeting, rank), &card) &&
           ddpi_card_get(ddpi_meeting_slot(meeting, rank - 1), &previous) &&
           ddpi_card_share_memory(&card, &previous);
}

/* Every rank has the cards of all, so every rank gets the same answer. */
void ddpi_edges_know_all(struct ddpi_edges *edges)
{
    const struct ddpi_meeting *meeting = &edges->meeting;
    ddpi_nodes_find(&edges->nodes, edges->nodes.firsts, meeting->rank, meeting->world_size,
                    shares_with_previous, meeting);
    for (uint32_t i = 0; i < ddpi_edges_places(edges); i++)
        edge_place(edges, ddpi_edges_at(edges, i));
}

ddp_status ddpi_edges_open(struct ddpi_edges *edges, struct ddp_error *err)
{
    ddpi_edges_know_all(edges);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &edges->meeting};
    int fd = ddpi_meeting_wait_fd(&edges->meeting);
    if (epoll_ctl(edges->controls, EPOLL_CTL_ADD, fd, &event) != 0)
        return ddpi_error_sys(err, errno, "watch the listeners");
    edges->open = true;
    return DDP_OK;
}

static void tell_peer(struct ddpi_edge *edge, const struct ddpi_edge *from,
                      const struct ddpi_memo *memo)
{
    if (edge != NULL && edge != from)
        ddpi_control_send(&edge->control, memo);
}

void ddpi_edges_notify(const struct ddpi_edges *edges, const struct ddpi_edge *from,
                       const struct ddpi_memo *memo)
{
    for (uint32_t i = 0; i < ddpi_edges_places(edges); i++)
        tell_peer(ddpi_edges_at(edges, i), from, memo);
}

static _Atomic(struct ddpi_edge *) *place_of(struct ddpi_edges *edges,
                                             const struct ddpi_arrival *arrival)
{
    switch (arrival->link) {
    case DDPI_LINK_PEER:
        return &edges->peers[arrival->edge->peer];
    case DDPI_LINK_RING:
        return &edges->ring[arrival->asked ? DDPI_NEXT : DDPI_PREV];
    case DDPI_LINK_BACK:
        return &edges->ring[arrival->asked ? DDPI_PREV : DDPI_NEXT];
    default:
        return NULL;
    }
}

/* An existing edge stays: ddp_comm_abort() may be using it. */
ddp_status ddpi_edges_add(struct ddpi_edges *edges, const struct ddpi_arrival *arrival,
                          struct ddp_error *err)
{
    struct ddpi_edge *edge = arrival->edge;
    _Atomic(struct ddpi_edge *) *place = place_of(edges, arrival);
    if (place == NULL || atomic_load(place) != NULL) {
        ddpi_edge_destroy(edge);
        return DDP_OK;
    }
    edge_place(edges, edge);
    ddp_status status = edge_watch(edges, edge, err);
    if (status == DDP_OK)
        atomic_store(place, edge);
    return status;
}

ddp_status ddpi_edges_let_in(struct ddpi_edges *edges, struct ddp_error *err)
{
    struct ddpi_arrival arrival = {0};
    if (!edges->open)
        return DDP_OK;
    do {
        ddp_status status = ddpi_meeting_advance(&edges->meeting, &arrival, err);
        if (status == DDP_OK && arrival.edge != NULL)
            status = ddpi_edges_add(edges, &arrival, err);
        if (status != DDP_OK)
            return status;
    } while (arrival.edge != NULL);
    return DDP_OK;
}

void ddpi_edges_farewell(struct ddpi_edges *edges, const struct ddpi_memo *failure)
{
    struct ddpi_memo memos[2];
    unsigned count = 0;
    (void)!ddpi_edges_let_in(edges, NULL); /* so that ranks that are connecting are told, too */
    if (failure != NULL)
        memos[count++] = *failure;
    ddpi_memo_fill(&memos[count++], DDPI_NOTICE_LEFT, DDP_OK, "");
    for (unsigned i = 0; i < count; i++)
        ddpi_edges_notify(edges, NULL, &memos[i]);
    ddpi_attempt_tell(&edges->meeting, memos, count);
}
