/*
 * gathering.c - what rank 0 and the others share while they gather. Owns the descriptor that
 * watches their connections, and nothing when it returns.
 */
#include "gathering.h"

#include "clock.h"
#include "error.h"
#include "verdict.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { SUSPECT_MS = 5000 };

uint32_t ddpi_gathering_left_ms(const struct ddpi_gathering *gathering)
{
    return (uint32_t)ddpi_remaining_ms(ddpi_monotonic_ms(), gathering->deadline_ms);
}

/* ---- messages ---- */

void ddpi_gathering_send(struct ddpi_edge *edge, enum ddpi_notice notice, uint32_t tag)
{
    struct ddpi_memo memo;
    if (edge == NULL)
        return;
    ddpi_memo_fill(&memo, notice, DDP_OK, "");
    ddpi_memo_tag(&memo, tag);
    ddpi_control_send(&edge->control, &memo);
}

void ddpi_gathering_send_card(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                              uint32_t rank)
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_CARD, DDP_OK, "");
    ddpi_memo_tag(&memo, rank);
    memcpy(memo.text, ddpi_meeting_slot(gathering->meeting, rank), DDPI_CARD_SLOT);
    ddpi_control_send(&edge->control, &memo);
}

void ddpi_gathering_send_failed(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                const struct ddp_error *err)
{
    const struct ddpi_card *card = &gathering->meeting->card;
    struct ddp_error told = *err;
    struct ddpi_memo memo;
    if (edge == NULL)
        return;
    if (!gathering->judged)
        ddpi_error_wrap(&told, told.status, "rank %u (pid %u on %s) could not join",
                        gathering->comm->rank, card->pid, card->node);
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, told.status, told.msg);
    ddpi_control_send(&edge->control, &memo);
}

/* A living rank says why it leaves, and this one has not. If only its listener could be asked, do
 * not ask: that takes a second, for which all ranks would wait for rank 0. */
static ddp_status rank_lost(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                            struct ddp_error *err)
{
    edge->gone_ms = ddpi_monotonic_ms();
    if (!edge->control.local)
        edge->fate = DDPI_FATE_UNKNOWN;
    const struct ddpi_verdict verdict = ddpi_verdict_of(edge);
    return ddpi_error_set(err, verdict.status, "%s %s; rank %u noticed it in ddp_comm_init()",
                          edge->peer_name, verdict.words, gathering->comm->rank);
}

/* Look whether the process has ended first, as it may have sent messages before; see wait.c. */
static ddp_status read_messages_of(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                   struct ddp_error *err)
{
    struct ddpi_memo memo;
    bool ended = ddpi_process_ended(&edge->process);
    ddp_status status = DDP_OK;
    while (status == DDP_OK && !gathering->over) {
        switch (ddpi_control_read(&edge->control, &memo)) {
        case DDPI_CONTROL_NONE:
            return ended ? rank_lost(gathering, edge, err) : DDP_OK;
        case DDPI_CONTROL_END:
            return rank_lost(gathering, edge, err);
        case DDPI_CONTROL_STARVED: /* no descriptors are passed here */
        case DDPI_CONTROL_GARBLED:
            return ddpi_error_set(err, DDP_E_PROTOCOL, "%s sent an invalid control message",
                                  edge->peer_name);
        case DDPI_CONTROL_MEMO:
            status = gathering->role->take(gathering, edge, &memo, err);
        }
    }
    return status;
}

ddp_status ddpi_gathering_read(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                               struct ddp_error *err)
{
    ddp_status status = read_messages_of(gathering, edge, err);
    gathering->judged |= status != DDP_OK;
    return status;
}

/* ---- the ring ---- */

ddp_status ddpi_gathering_begin_ring(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    const struct ddp_comm *comm = gathering->comm;
    return ddpi_meeting_ask(gathering->meeting, ddpi_ring_next(comm->rank, comm->world_size),
                            DDPI_LINK_RING, err);
}

bool ddpi_gathering_stands(const struct ddpi_gathering *gathering)
{
    return ddpi_edges_have_ring(&gathering->comm->edges);
}

/* Ranks that have connected become edges. */
static ddp_status accept_ranks(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct ddpi_arrival arrival;
    ddp_status status;
    do {
        status = ddpi_meeting_advance(gathering->meeting, &arrival, err);
        if (status != DDP_OK || arrival.edge == NULL)
            return status;
        status =
            arrival.link == DDPI_LINK_JOIN
                ? gathering->role->arrive(gathering, arrival.edge, err)
                : ddpi_edges_set_ring(&gathering->comm->edges,
                                      arrival.asked ? DDPI_NEXT : DDPI_PREV, arrival.edge, err);
    } while (status == DDP_OK);
    return status;
}

/* Rank 0 tells why the next rank is gone. Do not wait for that without limit, as a connection may
 * be refused for other reasons. */
static ddp_status suspect_neighbour(struct ddpi_gathering *gathering, uint64_t now,
                                    struct ddp_error *err)
{
    const struct ddpi_edge *asked = &gathering->meeting->attempt.edge;
    if (asked->broken == NULL)
        return DDP_OK;
    if (gathering->suspect_ms == UINT64_MAX)
        gathering->suspect_ms = now + SUSPECT_MS;
    if (now < gathering->suspect_ms)
        return DDP_OK;
    gathering->judged = true;
    return ddpi_error_set(err, DDP_E_PEER_DEAD, "%s %s", asked->peer_name, asked->broken);
}

/* ---- waiting ---- */

ddp_status ddpi_gathering_watch(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                struct ddp_error *err)
{
    const int fds[] = {edge->control.fd, edge->process.pidfd};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = edge};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0 && epoll_ctl(gathering->events, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return ddpi_error_sys(err, errno, "watch the connection to %s", edge->peer_name);
    return DDP_OK;
}

ddp_status ddpi_gathering_watch_listeners(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = gathering->meeting};
    int fd = ddpi_meeting_wait_fd(gathering->meeting);
    if (epoll_ctl(gathering->events, EPOLL_CTL_ADD, fd, &event) != 0)
        return ddpi_error_sys(err, errno, "watch the listeners");
    return DDP_OK;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

ddp_status ddpi_gathering_turn(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct epoll_event event;
    uint64_t wake_ms = earlier(gathering->wake_ms, gathering->suspect_ms);
    wake_ms = earlier(wake_ms, ddpi_meeting_wake_ms(gathering->meeting));
    wake_ms = earlier(wake_ms, gathering->look_ms);
    int count =
        epoll_wait(gathering->events, &event, 1, ddpi_remaining_ms(ddpi_monotonic_ms(), wake_ms));
    if (count < 0 && errno != EINTR)
        return ddpi_error_sys(err, errno, "wait for the other ranks");
    ddp_status status = count == 1 && event.data.ptr != gathering->meeting
                            ? ddpi_gathering_read(gathering, event.data.ptr, err)
                            : accept_ranks(gathering, err);
    uint64_t now = ddpi_monotonic_ms();
    if (status == DDP_OK)
        status = suspect_neighbour(gathering, now, err);
    if (status != DDP_OK || now < gathering->wake_ms || gathering->over)
        return status;
    status = gathering->role->overdue(gathering, err);
    gathering->judged |= status != DDP_OK;
    return status;
}
