/*
 * survivors.c - the connections between survivors. Owns those that it makes; the listeners and
 * cards are the old communicator's.
 */
#include "survivors.h"

#include "attempt.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum {
    FDS_A_PLACE = 2,
    LOOK_MS = 50 /* between attempts to watch a rank that cannot be reached */
};

static struct ddpi_meeting *meeting_of(const struct ddpi_survivors *survivors)
{
    return &survivors->comm->edges.meeting;
}

ddp_status ddpi_survivors_init(struct ddpi_survivors *survivors, struct ddp_comm *comm,
                               uint32_t timeout_ms, struct ddp_error *err)
{
    uint32_t ranks = comm->world_size;
    *survivors = (struct ddpi_survivors){
        .comm = comm,
        .timeout_ms = timeout_ms,
        .deadline_ms = ddpi_deadline(ddpi_monotonic_ms(), timeout_ms),
        .places = ddpi_calloc(ranks, sizeof *survivors->places),
        .fds = ddpi_calloc(1 + FDS_A_PLACE * (size_t)ranks, sizeof *survivors->fds)};
    if (survivors->places == NULL || survivors->fds == NULL)
        return ddpi_error_nomem(err, ranks * sizeof *survivors->places);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        survivors->places[rank].watch = -1;
        survivors->places[rank].process.pidfd = -1;
    }
    ddpi_attempt_drop(meeting_of(survivors));
    meeting_of(survivors)->takes_survivors = true;
    return DDP_OK;
}

static void unwatch(struct ddpi_place *place)
{
    ddpi_close_fd(&place->watch);
    ddpi_process_finish(&place->process);
}

static void drop_edge(struct ddpi_place *place)
{
    ddpi_edge_destroy(place->edge);
    place->edge = NULL;
    place->came = false;
}

void ddpi_survivors_finish(struct ddpi_survivors *survivors)
{
    for (uint32_t rank = 0; survivors->places != NULL && rank < survivors->comm->world_size;
         rank++) {
        unwatch(&survivors->places[rank]);
        drop_edge(&survivors->places[rank]);
    }
    ddpi_attempt_drop(meeting_of(survivors));
    meeting_of(survivors)->takes_survivors = false;
    ddpi_free(survivors->places);
    ddpi_free(survivors->fds);
}

uint32_t ddpi_survivors_leader(const struct ddpi_survivors *survivors)
{
    uint32_t rank = 0;
    while (rank < survivors->comm->rank &&
           (survivors->places[rank].gone || survivors->places[rank].excluded))
        rank++;
    return rank;
}

ddp_status ddpi_survivors_ask(struct ddpi_survivors *survivors, uint32_t rank,
                              struct ddp_error *err)
{
    return ddpi_meeting_ask(meeting_of(survivors), rank, DDPI_LINK_SURVIVOR, err);
}

void ddpi_survivors_name(const struct ddpi_survivors *survivors, uint32_t rank,
                         char name[DDPI_PEER_NAME])
{
    struct ddpi_card card;
    if (ddpi_card_get(ddpi_meeting_slot(meeting_of(survivors), rank), &card))
        snprintf(name, DDPI_PEER_NAME, "rank %u (pid %u on %s)", rank, card.pid, card.node);
    else
        snprintf(name, DDPI_PEER_NAME, "rank %u", rank);
}

/* ---- whether ranks live ---- */

static void lose(struct ddpi_place *place)
{
    place->gone = true;
    unwatch(place);
    drop_edge(place);
}

/* Connect to the listener of @rank, unless there is a connection. */
static void watch(const struct ddpi_survivors *survivors, uint32_t rank)
{
    struct ddpi_place *place = &survivors->places[rank];
    const struct ddpi_meeting *meeting = meeting_of(survivors);
    struct ddpi_card card;
    if (place->watch >= 0 || !ddpi_card_get(ddpi_meeting_slot(meeting, rank), &card))
        return;
    bool local = ddpi_card_share_memory(&meeting->card, &card);
    int error = local ? ddpi_begin_local(card.local, &place->watch)
                      : ddpi_begin_tcp(&card.tcp, &place->watch);
    place->connecting = error == EINPROGRESS;
    if (error == ECONNREFUSED || error == ECONNRESET)
        lose(place);
    else if (error != 0 && error != EINPROGRESS)
        place->watch = -1; /* the backlog is full, or there is no way now */
    else if (local)
        ddpi_process_find(place->watch, &place->process);
}

/* Look at the connection to @rank: a new one, if it was closed, shows whether the rank lives. */
static void check_watch(const struct ddpi_survivors *survivors, uint32_t rank)
{
    struct ddpi_place *place = &survivors->places[rank];
    char byte;
    if (ddpi_process_ended(&place->process)) {
        lose(place);
        return;
    }
    int error = place->watch >= 0 && place->connecting ? ddpi_connect_result(place->watch) : 0;
    if (error == EINPROGRESS)
        return;
    place->connecting = false;
    if (error == ECONNREFUSED || error == ECONNRESET) {
        lose(place);
        return;
    }
    if (error == 0 && place->watch >= 0 &&
        recv(place->watch, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN)
        return;
    unwatch(place);
    watch(survivors, rank);
}

static bool is_awaited(const struct ddpi_survivors *survivors, uint32_t rank)
{
    const struct ddpi_place *place = &survivors->places[rank];
    return rank != survivors->comm->rank && !place->excluded && !place->gone;
}

void ddpi_survivors_watch(struct ddpi_survivors *survivors)
{
    survivors->watched = survivors->comm->world_size;
    for (uint32_t rank = 0; rank < survivors->watched; rank++)
        if (is_awaited(survivors, rank) && survivors->places[rank].edge == NULL)
            check_watch(survivors, rank);
}

/* ---- messages ---- */

/* Look first whether the process has ended, as it may have sent messages before. */
static ddp_status read_place(struct ddpi_survivors *survivors, uint32_t rank, struct ddp_error *err)
{
    struct ddpi_place *place = &survivors->places[rank];
    struct ddpi_memo memo;
    ddp_status status = DDP_OK;
    bool ended = ddpi_process_ended(&place->edge->process);
    while (status == DDP_OK && place->edge != NULL) {
        switch (ddpi_control_read(&place->edge->control, &memo)) {
        case DDPI_CONTROL_MEMO:
            status = survivors->take(survivors, place, &memo, err);
            break;
        case DDPI_CONTROL_NONE:
            if (ended)
                lose(place);
            return DDP_OK;
        case DDPI_CONTROL_END:
        case DDPI_CONTROL_STARVED:
        case DDPI_CONTROL_GARBLED:
            lose(place);
            return DDP_OK;
        }
    }
    return status;
}

/* Ranks that have connected get their places; other edges become the old communicator's. */
static ddp_status let_in(struct ddpi_survivors *survivors, struct ddp_error *err)
{
    for (;;) {
        struct ddpi_arrival arrival = {0};
        ddp_status status = ddpi_meeting_advance(meeting_of(survivors), &arrival, err);
        if (status != DDP_OK || arrival.edge == NULL)
            return status;
        if (arrival.link != DDPI_LINK_SURVIVOR) {
            status = ddpi_edges_add(&survivors->comm->edges, &arrival, err);
            if (status != DDP_OK)
                return status;
            continue;
        }
        struct ddpi_place *place = &survivors->places[arrival.edge->peer];
        drop_edge(place);
        unwatch(place);
        place->edge = arrival.edge;
        if (arrival.asked) /* from now on its deadline counts, which may be later than ours */
            survivors->deadline_ms = ddpi_deadline(
                ddpi_monotonic_ms(), survivors->timeout_ms + survivors->timeout_ms / 2 + 1000);
    }
}

/* ---- a turn ---- */

static nfds_t list_descriptors(const struct ddpi_survivors *survivors)
{
    nfds_t count = 0;
    survivors->fds[count++] =
        (struct pollfd){.fd = ddpi_meeting_wait_fd(meeting_of(survivors)), .events = POLLIN};
    for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++) {
        const struct ddpi_place *place = &survivors->places[rank];
        bool has_edge = place->edge != NULL;
        survivors->fds[count++] =
            (struct pollfd){.fd = has_edge ? place->edge->control.fd : place->watch,
                            .events = place->connecting && !has_edge ? POLLOUT : POLLIN};
        survivors->fds[count++] = (struct pollfd){
            .fd = has_edge ? place->edge->process.pidfd : place->process.pidfd, .events = POLLIN};
    }
    return count;
}

ddp_status ddpi_survivors_turn(struct ddpi_survivors *survivors, struct ddp_error *err)
{
    uint64_t now = ddpi_monotonic_ms();
    uint64_t wake_ms = ddpi_meeting_wake_ms(meeting_of(survivors));
    uint64_t look_ms = now + LOOK_MS;
    if (survivors->deadline_ms < wake_ms)
        wake_ms = survivors->deadline_ms;
    if (survivors->watched > 0 && look_ms < wake_ms)
        wake_ms = look_ms;
    nfds_t count = list_descriptors(survivors);
    if (poll(survivors->fds, count, ddpi_remaining_ms(now, wake_ms)) < 0 && errno != EINTR)
        return ddpi_error_sys(err, errno, "wait for the other ranks");
    ddp_status status = let_in(survivors, err);
    for (uint32_t rank = 0; rank < survivors->comm->world_size && status == DDP_OK; rank++)
        if (survivors->places[rank].edge != NULL)
            status = read_place(survivors, rank, err);
    if (status == DDP_OK && survivors->watched > 0)
        ddpi_survivors_watch(survivors);
    return status;
}
