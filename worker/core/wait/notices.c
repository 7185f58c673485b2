/*
 * notices.c - see wait.h. Owns nothing.
 */
#include "wait.h"

#include "clock.h"
#include "error.h"

#include <errno.h>
#include <sys/epoll.h>

/* ---- of one peer ---- */

static ddp_status fail_starved(struct ddp_comm *comm, const struct ddpi_edge *edge)
{
    struct ddp_error cause;
    ddp_status status =
        ddpi_error_sys(&cause, EMFILE, "receive a descriptor of %s", edge->peer_name);
    ddpi_error_advise_descriptors(&cause, status);
    return ddpi_comm_fail(comm, NULL, status, "rank %u: %s", comm->rank, cause.msg);
}

static ddp_status fail_garbled(struct ddp_comm *comm, const struct ddpi_edge *edge)
{
    return ddpi_comm_fail(comm, edge, DDP_E_PROTOCOL, "%s sent an invalid control message",
                          edge->peer_name);
}

/* Read all messages of one peer. A child of a dead peer may hold its connection open, so that it
 * does not end: look at the process. Look first, as it may have sent messages before it ended. */
ddp_status ddpi_notices_read(struct ddp_comm *comm, struct ddpi_edge *edge,
                             const struct ddpi_needs *needs)
{
    struct ddpi_memo memo;
    uint64_t now = ddpi_monotonic_ms();
    bool ended = ddpi_process_ended(&edge->process);
    for (;;) {
        switch (ddpi_control_read(&edge->control, &memo)) {
        case DDPI_CONTROL_NONE:
            if (!ended)
                return comm->failed;
            __attribute__((fallthrough));
        case DDPI_CONTROL_END:
            edge->gone_ms = now;
            ddpi_edges_unwatch(&comm->edges, edge);
            return comm->failed;
        case DDPI_CONTROL_STARVED:
            return fail_starved(comm, edge);
        case DDPI_CONTROL_GARBLED:
            return fail_garbled(comm, edge);
        case DDPI_CONTROL_MEMO:
            break;
        }
        switch ((enum ddpi_notice)memo.notice) {
        case DDPI_NOTICE_FAILED:
            (void)ddpi_comm_take_failure(comm, edge, &memo);
            break;
        case DDPI_NOTICE_LEFT:
            edge->left = true;
            break;
        case DDPI_NOTICE_ASK:
            /* A rank reads notices only within an operation: the answer is always yes. */
            ddpi_memo_fill(&memo, DDPI_NOTICE_WAITING, DDP_OK, "");
            ddpi_control_send(&edge->control, &memo);
            for (unsigned i = 0; needs != NULL && i < needs->count; i++)
                if (ddpi_need_counts(&needs->list[i]))
                    ddpi_question_pass_on(comm, needs->list[i].edge, now);
            break;
        case DDPI_NOTICE_WAITING:
            ddpi_question_take_answer(comm, edge);
            break;
        case DDPI_NOTICE_DOUBT:
            ddpi_question_take_doubt(comm, edge, &memo);
            break;
        case DDPI_NOTICE_HANDOVER: /* the descriptor is in edge->control */
            break;
        case DDPI_NOTICE_CARD: /* only for ranks that join, over other edges */
        case DDPI_NOTICE_STANDS:
        case DDPI_NOTICE_GO:
        case DDPI_NOTICE_PLACE:
        case DDPI_NOTICE_AGAIN:
            return fail_garbled(comm, edge);
        }
    }
}

/* Read all messages of all peers: after a failure, too, more notices of it may come. */
ddp_status ddpi_notices_read_all(struct ddp_comm *comm)
{
    for (uint32_t i = 0; i < ddpi_edges_places(&comm->edges); i++) {
        struct ddpi_edge *edge = ddpi_edges_at(&comm->edges, i);
        if (edge != NULL && edge->gone_ms == 0)
            (void)ddpi_notices_read(comm, edge, NULL);
    }
    return comm->failed;
}

/* ---- of those that have sent some ---- */

enum { EVENTS = 8 }; /* the rest follows next time */

/* Returns how many sockets had something to read. */
static int read_some(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_needs *needs, ddp_status *ret_status)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(comm->edges.controls, events, EVENTS, 0);
    *ret_status = DDP_OK;
    for (int i = 0; i < count && *ret_status == DDP_OK; i++)
        *ret_status = events[i].data.ptr == &comm->edges.meeting
                          ? ddpi_seek_let_in(comm, wait)
                          : ddpi_notices_read(comm, events[i].data.ptr, needs);
    return count;
}

ddp_status ddpi_notices_read_ready(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                   const struct ddpi_needs *needs)
{
    ddp_status status;
    (void)read_some(comm, wait, needs, &status);
    return status;
}

bool ddpi_notices_may_succeed(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    ddp_status status = comm->failed;
    int count = EVENTS;
    while (status == DDP_OK && count == EVENTS)
        count = read_some(comm, wait, NULL, &status);
    if (status == DDP_OK)
        return true;
    (void)ddpi_notices_read_all(comm);
    return ddpi_comm_may_succeed(comm, wait->call);
}
