/*
 * shrink.c - ddp_comm_shrink(): the survivors of a communicator make a new one. Owns the child
 * until it is complete.
 *
 *     leader, the lowest survivor            the other survivors
 *                                   <-CARD-    connect to it, with the card of a new child
 *       all have come, or are gone
 *       to each its rank and the    -PLACE->
 *       cards that it needs         -CARD-->
 *                                   --GO--->
 *              all: the cards go round the ring of the child, which so stands
 *                                   <-STANDS-
 *       all stand                   --GO--->   done
 *
 * If a rank is lost before all stand, the leader says AGAIN, and all begin anew with new cards. If
 * the leader is lost, so do the others with the next one; but whoever has said STANDS has a child
 * that works, and keeps it: then its first operation reports the leader's death.
 */
#include "api_impl.h"
#include "clock.h"
#include "error.h"
#include "grouped_calls.h"
#include "host_memory.h"
#include "runs.h"
#include "survivors.h"

#include <ddprun/comm_groups.h>
#include <stdio.h>
#include <string.h>

enum { JOIN_MIN_MS = 1000 };

enum stage { AWAIT_PLACE, AWAIT_STANDS, AWAIT_GO, DONE, AGAIN };

struct shrink {
    struct ddpi_survivors survivors;
    struct ddp_comm *child; /* NULL: none */
    enum stage stage;
    uint32_t digest; /* of the ranks that this one excludes */
};

static struct shrink *shrink_of(struct ddpi_survivors *survivors)
{
    return survivors->taker;
}

static bool is_late(const struct ddpi_survivors *survivors)
{
    return ddpi_monotonic_ms() >= survivors->deadline_ms;
}

static void send_notice(struct ddpi_place *place, enum ddpi_notice notice)
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, notice, DDP_OK, "");
    ddpi_survivors_send(place, &memo);
}

static void send_card(struct ddpi_place *place, uint32_t tag, const uint8_t card[DDPI_CARD_SLOT])
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_CARD, DDP_OK, "");
    ddpi_memo_tag(&memo, tag);
    memcpy(memo.text, card, DDPI_CARD_SLOT);
    ddpi_survivors_send(place, &memo);
}

static ddp_status new_child(struct shrink *shrink, uint8_t card[DDPI_CARD_SLOT],
                            struct ddp_error *err)
{
    if (shrink->child != NULL)
        ddpi_comm_destroy(shrink->child);
    shrink->child = NULL;
    ddp_status status = ddpi_child_open(shrink->survivors.comm, &shrink->child, err);
    if (status == DDP_OK && !ddpi_child_card(shrink->child, card))
        status = ddpi_error_nomem(err, DDPI_CARD_SLOT);
    return status;
}

/* The ring of the child stands when the cards have gone round. */
static ddp_status join_child(struct shrink *shrink, struct ddp_error *err)
{
    struct ddp_comm *child = shrink->child;
    int left = ddpi_remaining_ms(ddpi_monotonic_ms(), shrink->survivors.deadline_ms);
    ddp_status status = ddpi_child_ready(child, shrink->survivors.comm, err);
    if (status != DDP_OK || child->world_size == 1)
        return status;
    child->seq = child->unfinished = 0;
    status = ddpi_host_join(child, left > JOIN_MIN_MS ? (uint64_t)left : JOIN_MIN_MS, err);
    if (status == DDP_OK)
        ddpi_edges_know_all(&child->edges);
    return status;
}

/* Whether the reason to fail is that one more rank is gone. */
static bool is_loss(ddp_status status)
{
    return status == DDP_E_PEER_DEAD || status == DDP_E_CLOSED;
}

/* ---- the leader ---- */

static ddp_status take_card(struct ddpi_survivors *survivors, struct ddpi_place *place,
                            const struct ddpi_memo *memo)
{
    place->came = !place->excluded;
    place->stands = false;
    place->digest = memo->tag;
    memcpy(place->card, memo->text, sizeof place->card);
    (void)survivors;
    return DDP_OK;
}

static ddp_status leader_take(struct ddpi_survivors *survivors, struct ddpi_place *place,
                              const struct ddpi_memo *memo, struct ddp_error *err)
{
    switch ((enum ddpi_notice)memo->notice) {
    case DDPI_NOTICE_CARD:
        return take_card(survivors, place, memo);
    case DDPI_NOTICE_STANDS:
        place->stands = true;
        return DDP_OK;
    case DDPI_NOTICE_AGAIN: /* it has lost a rank */
        shrink_of(survivors)->stage = AGAIN;
        return DDP_OK;
    case DDPI_NOTICE_FAILED:
        return ddpi_error_set(err, ddpi_memo_failure(memo), "%s", memo->text);
    default:
        return DDP_OK;
    }
}

/* How many ranks have neither come nor gone; with @err, a sentence with their names. */
static uint32_t count_missing(const struct ddpi_survivors *survivors, struct ddp_error *err)
{
    char names[DDP_ERROR_TEXT / 2] = "";
    uint32_t missing = 0;
    size_t used = 0;
    for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++) {
        const struct ddpi_place *place = &survivors->places[rank];
        char name[DDPI_PEER_NAME];
        if (rank == survivors->comm->rank || place->excluded || place->gone || place->came)
            continue;
        ddpi_survivors_name(survivors, rank, name);
        if (used + sizeof name < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     missing > 0 ? ", " : "", name);
        missing++;
    }
    if (missing > 0 && err != NULL)
        ddpi_error_set(err, DDP_E_TIMEOUT,
                       "%u ms have passed, and %u ranks live but have not called "
                       "ddp_comm_shrink(): %s; end them, or exclude them",
                       survivors->timeout_ms, missing, names);
    return missing;
}

static ddp_status compare_excluded(const struct shrink *shrink, struct ddp_error *err)
{
    const struct ddpi_survivors *survivors = &shrink->survivors;
    char name[DDPI_PEER_NAME];
    for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++)
        if (survivors->places[rank].came && survivors->places[rank].digest != shrink->digest) {
            ddpi_survivors_name(survivors, rank, name);
            return ddpi_error_set(err, DDP_E_MISMATCH,
                                  "rank %u and %s exclude different ranks: pass the same list",
                                  survivors->comm->rank, name);
        }
    return DDP_OK;
}

static ddp_status await_members(struct shrink *shrink, struct ddp_error *err)
{
    struct ddpi_survivors *survivors = &shrink->survivors;
    ddp_status status = DDP_OK;
    ddpi_survivors_watch(survivors);
    while (status == DDP_OK && count_missing(survivors, NULL) > 0) {
        status = ddpi_survivors_turn(survivors, err);
        if (status == DDP_OK && is_late(survivors) && count_missing(survivors, err) > 0)
            return DDP_E_TIMEOUT;
    }
    return status == DDP_OK ? compare_excluded(shrink, err) : status;
}

/* Send @member, who becomes @rank of @size, the cards of rank 0 and of its neighbours. */
static void send_plan(const struct shrink *shrink, struct ddpi_place *member, uint32_t rank,
                      uint32_t size)
{
    const struct ddpi_meeting *meeting = &shrink->child->edges.meeting;
    const uint32_t needed[] = {0, ddpi_ring_prev(rank, size), ddpi_ring_next(rank, size)};
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_PLACE, (ddp_status)size, "");
    ddpi_memo_tag(&memo, rank);
    ddpi_survivors_send(member, &memo);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        send_card(member, needed[i], ddpi_meeting_slot(meeting, needed[i]));
    send_notice(member, DDPI_NOTICE_GO);
}

/* All that survive have come: number them. */
static ddp_status place_members(struct shrink *shrink, struct ddp_error *err)
{
    struct ddpi_survivors *survivors = &shrink->survivors;
    uint32_t size = 1, next = 1;
    for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++)
        size += survivors->places[rank].came;
    ddp_status status = ddpi_child_place(shrink->child, 0, size, err);
    for (uint32_t rank = 0; rank < survivors->comm->world_size && status == DDP_OK; rank++)
        if (survivors->places[rank].came)
            ddpi_child_know(shrink->child, next++, survivors->places[rank].card);
    next = 1;
    for (uint32_t rank = 0; rank < survivors->comm->world_size && status == DDP_OK; rank++)
        if (survivors->places[rank].came)
            send_plan(shrink, &survivors->places[rank], next++, size);
    return status;
}

/* Until the child of each rank stands; stage AGAIN: a rank was lost. */
static ddp_status await_stands(struct shrink *shrink, uint32_t size, struct ddp_error *err)
{
    struct ddpi_survivors *survivors = &shrink->survivors;
    for (;;) {
        uint32_t standing = 1, here = 1;
        for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++) {
            here += survivors->places[rank].came;
            standing += survivors->places[rank].came && survivors->places[rank].stands;
        }
        if (here < size)
            shrink->stage = AGAIN;
        if (shrink->stage == AGAIN || standing == size)
            return DDP_OK;
        if (is_late(survivors))
            return ddpi_error_set(err, DDP_E_TIMEOUT,
                                  "%u of %u ranks have not joined the new communicator in time",
                                  size - standing, size);
        ddp_status status = ddpi_survivors_turn(survivors, err);
        if (status != DDP_OK)
            return status;
    }
}

static void tell_all(struct ddpi_survivors *survivors, enum ddpi_notice notice, ddp_status status,
                     const char *text)
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, notice, status, text);
    for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++)
        ddpi_survivors_send(&survivors->places[rank], &memo);
}

static ddp_status gather_members(struct shrink *shrink, struct ddp_error *err)
{
    uint8_t own[DDPI_CARD_SLOT];
    shrink->stage = AWAIT_STANDS;
    ddp_status status = new_child(shrink, own, err);
    if (status == DDP_OK)
        status = await_members(shrink, err);
    shrink->stage = AWAIT_STANDS;
    if (status == DDP_OK)
        status = place_members(shrink, err);
    return status == DDP_OK ? join_child(shrink, err) : status;
}

static ddp_status lead(struct shrink *shrink, struct ddp_error *err)
{
    struct ddpi_survivors *survivors = &shrink->survivors;
    struct ddp_error cause = {0};
    survivors->take = leader_take;
    ddp_status status = gather_members(shrink, &cause);
    bool again = is_loss(status);
    if (status == DDP_OK) {
        status = await_stands(shrink, shrink->child->world_size, &cause);
        again = status == DDP_OK && shrink->stage == AGAIN;
    }
    if (again) {
        shrink->stage = AGAIN;
        for (uint32_t rank = 0; rank < survivors->comm->world_size; rank++)
            survivors->places[rank].came = false;
        tell_all(survivors, DDPI_NOTICE_AGAIN, DDP_OK, "");
        return DDP_OK;
    }
    if (status != DDP_OK) {
        ddpi_error_wrap(&cause, status, "rank %u", survivors->comm->rank);
        tell_all(survivors, DDPI_NOTICE_FAILED, status, cause.msg);
        return ddpi_error_set(err, status, "%s", cause.msg);
    }
    shrink->stage = DONE;
    tell_all(survivors, DDPI_NOTICE_GO, DDP_OK, "");
    return DDP_OK;
}

/* ---- the others ---- */

/* The child is at @place, of which @memo tells. */
static ddp_status take_place(struct shrink *shrink, const struct ddpi_memo *memo,
                             struct ddp_error *err)
{
    uint32_t size = (uint32_t)memo->status, rank = memo->tag;
    if (shrink->child->world_size != 0 || size > shrink->survivors.comm->world_size || rank >= size)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "there is no rank %u of %u", rank, size);
    return ddpi_child_place(shrink->child, rank, size, err);
}

static ddp_status take_go(struct shrink *shrink, struct ddpi_place *leader, struct ddp_error *err)
{
    if (shrink->stage == AWAIT_GO) {
        shrink->stage = DONE;
        return DDP_OK;
    }
    if (shrink->stage != AWAIT_PLACE || shrink->child->world_size < 2)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "an unexpected message has come");
    ddp_status status = join_child(shrink, err);
    if (status == DDP_OK)
        shrink->stage = AWAIT_GO;
    else if (is_loss(status))
        shrink->stage = AWAIT_STANDS; /* of nothing: the leader will say AGAIN */
    else
        return status;
    send_notice(leader, status == DDP_OK ? DDPI_NOTICE_STANDS : DDPI_NOTICE_AGAIN);
    return DDP_OK;
}

/* Before this rank has a leader, others may come that take it for theirs. */
static ddp_status member_take(struct ddpi_survivors *survivors, struct ddpi_place *place,
                              const struct ddpi_memo *memo, struct ddp_error *err)
{
    struct shrink *shrink = shrink_of(survivors);
    if (place != &survivors->places[ddpi_survivors_leader(survivors)])
        return memo->notice == DDPI_NOTICE_CARD ? take_card(survivors, place, memo) : DDP_OK;
    switch ((enum ddpi_notice)memo->notice) {
    case DDPI_NOTICE_PLACE:
        return take_place(shrink, memo, err);
    case DDPI_NOTICE_CARD:
        if (memo->tag < shrink->child->world_size)
            ddpi_child_know(shrink->child, memo->tag, (const uint8_t *)memo->text);
        return DDP_OK;
    case DDPI_NOTICE_GO:
        return take_go(shrink, place, err);
    case DDPI_NOTICE_AGAIN:
        shrink->stage = AGAIN;
        return DDP_OK;
    case DDPI_NOTICE_FAILED:
        return ddpi_error_set(err, ddpi_memo_failure(memo), "%s", memo->text);
    default:
        return DDP_OK;
    }
}

static ddp_status member_late(const struct ddpi_survivors *survivors, uint32_t leader,
                              struct ddp_error *err)
{
    char name[DDPI_PEER_NAME];
    ddpi_survivors_name(survivors, leader, name);
    return ddpi_error_set(
        err, DDP_E_TIMEOUT, "rank %u: %u ms have passed, and %s %s; end it, or exclude it",
        survivors->comm->rank, survivors->timeout_ms, name,
        survivors->places[leader].edge == NULL ? "lives but has not called ddp_comm_shrink()"
                                               : "does not answer");
}

/* Until there is a connection to @leader, or it is gone. */
static ddp_status connect_to_leader(struct ddpi_survivors *survivors, uint32_t leader,
                                    struct ddp_error *err)
{
    struct ddpi_place *place = &survivors->places[leader];
    const struct ddpi_attempt *attempt = &survivors->comm->edges.meeting.attempt;
    ddp_status status = place->edge == NULL ? ddpi_survivors_ask(survivors, leader, err) : DDP_OK;
    while (status == DDP_OK && place->edge == NULL && !place->gone) {
        status = ddpi_survivors_turn(survivors, err);
        place->gone |= attempt->stage == DDPI_ATTEMPT_GONE;
        if (status == DDP_OK && place->edge == NULL && !place->gone && is_late(survivors))
            status = member_late(survivors, leader, err);
    }
    return status;
}

/* This rank lives, and cannot go on: without it no rank does. */
static ddp_status tell_leader(const struct ddpi_survivors *survivors, struct ddpi_place *leader,
                              ddp_status status, const struct ddp_error *cause,
                              struct ddp_error *err)
{
    struct ddpi_memo memo;
    struct ddp_error named = *cause;
    ddpi_error_wrap(&named, status, "rank %u", survivors->comm->rank);
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, status, named.msg);
    ddpi_survivors_send(leader, &memo);
    if (err != NULL)
        *err = *cause;
    return status;
}

static ddp_status follow(struct shrink *shrink, uint32_t leader, struct ddp_error *err)
{
    struct ddpi_survivors *survivors = &shrink->survivors;
    struct ddpi_place *place = &survivors->places[leader];
    struct ddp_error cause = {0};
    uint8_t card[DDPI_CARD_SLOT];
    survivors->take = member_take;
    shrink->stage = AWAIT_PLACE;
    ddp_status status = connect_to_leader(survivors, leader, &cause);
    if (status == DDP_OK && place->gone) {
        shrink->stage = AGAIN;
        return DDP_OK;
    }
    if (status == DDP_OK)
        status = new_child(shrink, card, &cause);
    if (status == DDP_OK)
        send_card(place, shrink->digest, card);
    while (status == DDP_OK && shrink->stage != DONE && shrink->stage != AGAIN) {
        status = ddpi_survivors_turn(survivors, &cause);
        if (place->gone && status == DDP_OK && shrink->stage != DONE)
            shrink->stage = shrink->stage == AWAIT_GO ? DONE : AGAIN;
        else if (status == DDP_OK && shrink->stage != DONE && is_late(survivors))
            status = member_late(survivors, leader, &cause);
    }
    return status == DDP_OK ? DDP_OK : tell_leader(survivors, place, status, &cause, err);
}

/* ---- the call ---- */

static ddp_status read_excluded(struct shrink *shrink, const uint32_t *excluded, uint32_t count,
                                struct ddp_error *err)
{
    const struct ddp_comm *comm = shrink->survivors.comm;
    for (uint32_t i = 0; i < count; i++) {
        if (excluded[i] >= comm->world_size || excluded[i] == comm->rank)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  excluded[i] == comm->rank
                                      ? "rank %d excludes itself: it must not call this"
                                      : "rank %d, which is to be excluded, does not exist",
                                  (int)excluded[i]);
        shrink->survivors.places[excluded[i]].excluded = true;
    }
    shrink->digest = 1;
    for (uint32_t rank = 0; rank < comm->world_size; rank++)
        shrink->digest =
            (shrink->digest ^ shrink->survivors.places[rank].excluded) * 0x01000193u + rank;
    return DDP_OK;
}

static ddp_status run_shrink(struct shrink *shrink, struct ddp_error *err)
{
    struct ddpi_survivors *survivors = &shrink->survivors;
    ddp_status status = DDP_OK;
    shrink->stage = AGAIN;
    while (status == DDP_OK && shrink->stage == AGAIN) {
        uint32_t leader = ddpi_survivors_leader(survivors);
        status = leader == survivors->comm->rank ? lead(shrink, err) : follow(shrink, leader, err);
    }
    return status;
}

/* Alone, a rank looks for no others. */
static ddp_status shrink_alone(struct shrink *shrink, struct ddp_error *err)
{
    ddp_status status = ddpi_child_open(shrink->survivors.comm, &shrink->child, err);
    return status == DDP_OK ? ddpi_child_place(shrink->child, 0, 1, err) : status;
}

ddp_status ddp_comm_shrink(ddp_comm *comm, const uint32_t *excluded, uint32_t count, uint32_t flags,
                           uint32_t timeout_ms, ddp_comm **ret_comm, struct ddp_error *err)
{
    struct shrink shrink = {.stage = AGAIN};
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(comm, "ddp_comm_shrink", err);
    if (status == DDP_OK && (flags & ~(uint32_t)DDP_SHRINK_ABORT) != 0)
        status = ddpi_error_set(err, DDP_E_INVALID, "%u has unknown flags", flags);
    if (status != DDP_OK)
        return status;
    if ((flags & DDP_SHRINK_ABORT) != 0)
        ddp_comm_abort(comm);
    ddpi_runs_claim(comm);
    status = ddpi_survivors_init(&shrink.survivors, comm,
                                 timeout_ms != 0 ? timeout_ms : comm->timeout_ms, err);
    shrink.survivors.taker = &shrink;
    if (status == DDP_OK)
        status = read_excluded(&shrink, excluded, count, err);
    if (status == DDP_OK)
        status = comm->world_size > 1 ? run_shrink(&shrink, err) : shrink_alone(&shrink, err);
    ddpi_survivors_finish(&shrink.survivors);
    ddpi_runs_release(comm);
    if (status == DDP_OK)
        *ret_comm = shrink.child;
    else if (shrink.child != NULL)
        ddpi_comm_destroy(shrink.child);
    return ddpi_error_advise_descriptors(err, status);
}
