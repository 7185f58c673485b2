/*
 * wait.c - the one place where a rank sleeps, and what ends the sleep: bytes, the death of a peer,
 * an abort, a failure that another rank reports, the deadline.
 *
 * A peer that is gone matters only to a rank that needs something from it: a rank that has
 * completed its last operation may leave while others still read what it sent. A failure that a
 * peer reports matters at once and is passed on, so that all survivors return with the first cause.
 * Before a rank names a peer that is gone, it looks at all others: a peer that has left, or may
 * have, can have done so because another one died.
 *
 * Before the deadline ranks find out which of them to name when it passes (question.c).
 */
#include "wait.h"

#include "arena_wait.h"
#include "chunk_layout.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "question.h"
#include "ring.h"
#include "verdict.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { ARENA_NAP_US = 500 }; /* between looks at an arena */

struct needs {
    const struct ddpi_need *list;
    unsigned count;
};

static bool is_needed(const struct ddpi_need *need)
{
    return !need->optional && (need->recv_bytes > 0 || need->send || need->handover || need->taken);
}

/* The operation that needs @need, one of those for which a rank sleeps in @wait. */
static const struct ddpi_wait *need_wait(const struct ddpi_need *need, const struct ddpi_wait *wait)
{
    return need->wait != NULL ? need->wait : wait;
}

static void wake_by(uint64_t *wake_ms, uint64_t candidate)
{
    if (candidate < *wake_ms)
        *wake_ms = candidate;
}

/* Fail if a needed edge has ended; *@wake_ms is when to look again. */
static ddp_status judge_life(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    if (edge->broken != NULL && edge->broken_ms == 0)
        edge->broken_ms = now;
    if (edge->gone_ms == 0 && edge->broken_ms == 0)
        return DDP_OK;
    if (edge->gone_ms != 0 && (edge->broken_ms != 0 || edge->ops->linger_ms == 0))
        return ddpi_wait_gone(comm, wait, edge);
    uint64_t until = (edge->gone_ms != 0 ? edge->gone_ms : edge->broken_ms) + edge->ops->linger_ms;
    if (now >= until)
        return ddpi_wait_gone(comm, wait, edge);
    wake_by(wake_ms, until);
    return DDP_OK;
}

/* Fail if an edge that is needed has ended, or its time is up. */
static ddp_status judge_need(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             const struct ddpi_need *need, uint64_t now, uint64_t *wake_ms)
{
    if (need->optional && now < wait->deadline_ms)
        wake_by(wake_ms, wait->deadline_ms);
    if (!is_needed(need))
        return DDP_OK;
    ddp_status status = judge_life(comm, wait, need->edge, now, wake_ms);
    return status == DDP_OK ? ddpi_question_judge(comm, wait, need->edge, now, wake_ms) : status;
}

ddp_status ddpi_wait_question(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              struct ddpi_edge *edge, uint64_t now)
{
    const struct ddpi_need need = {.edge = edge, .recv_bytes = 1};
    return ddpi_wait_judge(comm, wait, &need, false, now);
}

ddp_status ddpi_wait_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need, bool move, uint64_t now)
{
    uint64_t wake_ms = UINT64_MAX;
    if (move)
        return is_needed(need) ? ddpi_question_pace(comm, wait, need->edge) : DDP_OK;
    return judge_need(comm, wait, need, now, &wake_ms);
}

static ddp_status judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                        const struct needs *needs, uint64_t now, uint64_t *ret_wake_ms)
{
    uint64_t wake_ms = wait->until_ms != 0 ? wait->until_ms : UINT64_MAX;
    if (needs->count == 0 && now < wait->deadline_ms)
        wake_by(&wake_ms, wait->deadline_ms);
    wake_by(&wake_ms, ddpi_edges_wake_ms(&comm->edges));
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < needs->count && status == DDP_OK; i++)
        status = judge_need(comm, need_wait(&needs->list[i], wait), &needs->list[i], now, &wake_ms);
    *ret_wake_ms = wake_ms;
    return status;
}

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
static ddp_status read_messages(struct ddp_comm *comm, struct ddpi_edge *edge,
                                const struct needs *needs)
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
            ddpi_memo_fill(&memo, DDPI_NOTICE_WAITING, DDP_OK, "");
            ddpi_control_send(&edge->control, &memo);
            for (unsigned i = 0; i < needs->count; i++)
                if (is_needed(&needs->list[i]))
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
static ddp_status read_all_messages(struct ddp_comm *comm)
{
    for (uint32_t i = 0; i < ddpi_edges_places(&comm->edges); i++) {
        struct ddpi_edge *edge = ddpi_edges_at(&comm->edges, i);
        if (edge != NULL && edge->gone_ms == 0)
            (void)read_messages(comm, edge, &(const struct needs){0});
    }
    return comm->failed;
}

ddp_status ddpi_wait_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_edge *edge)
{
    ddp_status status = read_all_messages(comm);
    if (status != DDP_OK)
        return status;
    edge = ddpi_verdict_culprit(&comm->edges, edge);
    const struct ddpi_verdict verdict = ddpi_verdict_of(edge);
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(comm, edge, verdict.status, "%s %s; rank %u noticed it in %s",
                          edge->peer_name, verdict.words, comm->rank, call);
}

/* Accepting or connecting has failed. */
static ddp_status fail_meeting(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               ddp_status status, struct ddp_error *cause)
{
    char call[DDPI_CALL_TEXT];
    ddpi_error_advise_descriptors(cause, status);
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(comm, NULL, status, "%s: rank %u: %s", call, comm->rank, cause->msg);
}

static ddp_status let_in(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    struct ddp_error cause = {0};
    ddp_status status = ddpi_edges_let_in(&comm->edges, &cause);
    return status == DDP_OK ? DDP_OK : fail_meeting(comm, wait, status, &cause);
}

enum { EVENTS = 8 }; /* the rest follows next time */

/* Returns how many sockets had something to read. */
static int handle_some(struct ddp_comm *comm, const struct ddpi_wait *wait,
                       const struct needs *needs, ddp_status *ret_status)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(comm->edges.controls, events, EVENTS, 0);
    *ret_status = DDP_OK;
    for (int i = 0; i < count && *ret_status == DDP_OK; i++)
        *ret_status = events[i].data.ptr == &comm->edges.meeting
                          ? let_in(comm, wait)
                          : read_messages(comm, events[i].data.ptr, needs);
    return count;
}

static ddp_status handle_events(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                const struct needs *needs)
{
    ddp_status status;
    (void)handle_some(comm, wait, needs, &status);
    return status;
}

ddp_status ddpi_wait_poll(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    return handle_events(comm, wait, &(const struct needs){0});
}

bool ddpi_wait_may_succeed(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    ddp_status status = comm->failed;
    int count = EVENTS;
    while (status == DDP_OK && count == EVENTS)
        count = handle_some(comm, wait, &(const struct needs){0}, &status);
    if (status == DDP_OK)
        return true;
    (void)read_all_messages(comm);
    return ddpi_comm_may_succeed(comm, wait->call);
}

/* The bell; all control sockets and the listeners; then the data of each need. */
enum { POLL_BELL, POLL_CONTROLS, POLL_DATA };

/* Where those of need number @needs begin; how many there are for so many needs. */
static unsigned poll_place(unsigned needs)
{
    return POLL_DATA + DDPI_EDGE_POLLS * needs;
}

/* Room for @count needs in the communicator's list for poll(2); NULL: no memory. */
static struct pollfd *poll_room(struct ddp_comm *comm, unsigned count)
{
    unsigned wanted = poll_place(count);
    if (wanted <= comm->polled_room)
        return comm->polled;
    struct pollfd *fds = ddpi_calloc(2 * wanted, sizeof *fds);
    if (fds == NULL) {
        (void)ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory to wait for %u ranks",
                             comm->rank, count);
        return NULL;
    }
    ddpi_free(comm->polled);
    comm->polled = fds;
    comm->polled_room = 2 * wanted;
    return fds;
}

/* true if a need is met already. */
static bool arm_needs(const struct ddp_comm *comm, const struct needs *needs, struct pollfd *fds)
{
    bool ready = false;
    fds[POLL_BELL] = (struct pollfd){.fd = comm->bell, .events = POLLIN};
    fds[POLL_CONTROLS] = (struct pollfd){.fd = comm->edges.controls, .events = POLLIN};
    for (unsigned i = 0; i < needs->count; i++) {
        const struct ddpi_need *need = &needs->list[i];
        struct pollfd *polls = &fds[poll_place(i)];
        for (unsigned n = 0; n < DDPI_EDGE_POLLS; n++)
            polls[n] = (struct pollfd){.fd = -1};
        if (need->recv_bytes > 0 || need->send)
            ready |= need->edge->ops->arm(need->edge, need->recv_bytes, need->send, polls);
        ready |= need->handover && ddpi_control_has_fd(&need->edge->control, need->tag);
    }
    return ready;
}

static void disarm_needs(const struct needs *needs)
{
    for (unsigned i = 0; i < needs->count; i++)
        if (needs->list[i].recv_bytes > 0 || needs->list[i].send)
            needs->list[i].edge->ops->disarm(needs->list[i].edge);
}

/* How long to sleep; NULL: without limit. */
static struct timespec *time_to(const struct ddpi_wait *wait, uint64_t now, uint64_t wake_ms,
                                struct timespec *time)
{
    int left_ms = ddpi_remaining_ms(now, wake_ms);
    if (wait->nap_us > 0 && (left_ms < 0 || wait->nap_us < (uint64_t)left_ms * 1000)) {
        *time = (struct timespec){.tv_nsec = (long)wait->nap_us * 1000};
        return time;
    }
    *time = (struct timespec){.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000L};
    return left_ms < 0 ? NULL : time;
}

static ddp_status sleep_until(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct needs *needs, struct pollfd *fds, uint64_t now,
                              uint64_t wake_ms)
{
    struct timespec time;
    int count = ppoll(fds, poll_place(needs->count), time_to(wait, now, wake_ms, &time), NULL);
    if (count < 0 && errno != EINTR)
        return ddpi_comm_fail(comm, NULL, DDP_E_SYSTEM, "rank %u: poll: %s", comm->rank,
                              strerrordesc_np(errno));
    if (count <= 0)
        return now >= ddpi_edges_wake_ms(&comm->edges) ? let_in(comm, wait) : DDP_OK;
    uint64_t rings;
    if (fds[POLL_BELL].revents != 0)
        (void)!read(comm->bell, &rings, sizeof rings);
    ddp_status status = DDP_OK;
    if (fds[POLL_CONTROLS].revents != 0)
        status = handle_events(comm, wait, needs);
    return status;
}

/* The need of an operation in an arena; NULL: there is none. */
static const struct ddpi_need *find_arena_need(const struct ddpi_need *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (list[i].arena_op != NULL)
            return &list[i];
    return NULL;
}

/* A rank of this node has died, and the kernel frees its memory before it ends its sockets, at 60
 * ms for each GiB. What it has sent before comes first, so call it before looking for bytes.
 * *@wake_ms is when to look again. */
static ddp_status note_death(struct ddp_comm *comm, const struct needs *needs, uint64_t now,
                             uint64_t *wake_ms)
{
    uint32_t rank;
    struct ddpi_edge *edge =
        ddpi_arena_finds_death(comm, &rank) ? ddpi_edges_peer(&comm->edges, rank) : NULL;
    if (edge == NULL || edge->gone_ms != 0)
        return DDP_OK;
    if (!ddpi_arena_is_dead(comm, rank)) { /* or not yet */
        wake_by(wake_ms, now + 1);
        return DDP_OK;
    }
    ddp_status status = read_messages(comm, edge, needs);
    if (status != DDP_OK || edge->gone_ms != 0)
        return status;
    edge->gone_ms = now;
    edge->fate = DDPI_FATE_DEAD;
    ddpi_edges_unwatch(&comm->edges, edge);
    return DDP_OK;
}

static ddp_status wait_for_edges(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                 const struct ddpi_need *list, unsigned count)
{
    const struct needs needs = {.list = list, .count = count};
    struct pollfd *fds = poll_room(comm, count);
    uint64_t now = ddpi_monotonic_ms(), wake_ms, look_ms = UINT64_MAX;
    if (fds == NULL)
        return comm->failed;
    ddp_status status = note_death(comm, &needs, now, &look_ms);
    if (status != DDP_OK)
        return status;
    if (!arm_needs(comm, &needs, fds)) {
        status = judge(comm, wait, &needs, now, &wake_ms);
        wake_by(&wake_ms, look_ms);
        if (status == DDP_OK)
            status = ddpi_comm_check_abort(comm);
        if (status == DDP_OK)
            status = sleep_until(comm, wait, &needs, fds, now, wake_ms);
    }
    disarm_needs(&needs);
    return status == DDP_OK ? ddpi_comm_check_abort(comm) : status;
}

/* The bell of an arena is no descriptor: a rank that waits for edges as well looks at the arena
 * each time after a short sleep. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *list, unsigned count)
{
    const struct ddpi_need *arena = find_arena_need(list, count);
    if (arena == NULL)
        return wait_for_edges(comm, wait, list, count);
    if (count == 1)
        return ddpi_arena_wait(comm, wait, arena);
    bool ready;
    ddp_status status = ddpi_arena_judge(comm, need_wait(arena, wait), arena, &ready);
    if (status != DDP_OK || ready)
        return status;
    struct ddpi_wait nap = *wait;
    nap.nap_us = ARENA_NAP_US;
    return wait_for_edges(comm, &nap, list, count);
}

/* Begin to connect to @peer, unless an attempt is in progress. */
static ddp_status ask_for_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                               enum ddpi_link link)
{
    struct ddpi_meeting *meeting = &comm->edges.meeting;
    struct ddp_error cause;
    if (meeting->attempt.stage != DDPI_ATTEMPT_NONE)
        return DDP_OK;
    ddp_status status = ddpi_meeting_ask(meeting, peer, link, &cause);
    return status == DDP_OK ? let_in(comm, wait) : fail_meeting(comm, wait, status, &cause);
}

ddp_status ddpi_seek_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge)
{
    ddp_status status = DDP_OK;
    *ret_edge = ddpi_edges_peer(&comm->edges, peer);
    if (*ret_edge != NULL)
        return DDP_OK;
    status = let_in(comm, wait);
    *ret_edge = ddpi_edges_peer(&comm->edges, peer);
    if (status != DDP_OK || *ret_edge != NULL)
        return status;
    status = ask_for_edge(comm, wait, peer, DDPI_LINK_PEER);
    *ret_edge = ddpi_edges_peer(&comm->edges, peer);
    return status;
}

static ddp_status get_scratch(struct ddp_comm *comm)
{
    if (comm->scratch == NULL)
        comm->scratch = ddpi_calloc(DDPI_SCRATCH_SIZE, 1);
    return comm->scratch != NULL
               ? DDP_OK
               : ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory for %d bytes",
                                comm->rank, DDPI_SCRATCH_SIZE);
}

ddp_status ddpi_seek_ring(struct ddp_comm *comm, const struct ddpi_wait *wait, bool *ret_stands)
{
    struct ddpi_edges *edges = &comm->edges;
    uint32_t next = ddpi_ring_next(comm->rank, comm->world_size);
    uint32_t prev = ddpi_ring_prev(comm->rank, comm->world_size);
    ddp_status status = comm->scratch != NULL ? DDP_OK : get_scratch(comm);
    if (status == DDP_OK && !ddpi_edges_have_ring(edges))
        status = let_in(comm, wait);
    if (status == DDP_OK && edges->ring[DDPI_NEXT] == NULL)
        status = ask_for_edge(comm, wait, next, DDPI_LINK_RING);
    if (status == DDP_OK && edges->ring[DDPI_PREV] == NULL)
        status = ask_for_edge(comm, wait, prev, DDPI_LINK_BACK);
    *ret_stands = ddpi_edges_have_ring(edges);
    return status;
}

struct ddpi_edge *ddpi_sought_edge(const struct ddp_comm *comm)
{
    return (struct ddpi_edge *)(uintptr_t)&comm->edges.meeting.attempt.edge;
}

ddp_status ddpi_wait_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge)
{
    for (;;) {
        ddp_status status = ddpi_seek_edge(comm, wait, peer, ret_edge);
        if (status != DDP_OK || *ret_edge != NULL)
            return status;
        const struct ddpi_need need = {.edge = ddpi_sought_edge(comm), .recv_bytes = 1};
        status = ddpi_wait(comm, wait, &need, 1);
        if (status != DDP_OK)
            return status;
    }
}
