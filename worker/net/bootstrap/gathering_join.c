/*
 * gathering_join.c - a rank that rank 0 gathers: finds rank 0 and sends its card, connects to its
 * neighbours, and waits until rank 0 lets it go. Owns the connection to rank 0.
 */
#include "attempt.h"
#include "clock.h"
#include "error.h"
#include "gathering.h"

#include <poll.h>
#include <string.h>

enum {
    WORD_MS = 2000, /* for the message of rank 0 when the deadline has passed */
    PAUSE_MIN_MS = 10,
    PAUSE_MAX_MS = 500,
};

struct joiner {
    struct ddpi_gathering gathering;
    struct ddpi_edge *host;    /* NULL: not accepted yet */
    struct ddpi_entry entry;   /* the card of rank 0 as it is in the directory */
    char gone[DDPI_PEER_NAME]; /* the last rank 0 that was found dead; "": none */
    uint32_t pause_ms;         /* before the next attempt after rank 0 has hung up */
    uint32_t neighbours;       /* cards of neighbours that have come */
    bool asked;                /* rank 0 was asked for its judgement, as the deadline has passed */
};

static struct joiner *joiner_of(struct ddpi_gathering *gathering)
{
    return ddpi_container_of(gathering, struct joiner, gathering);
}

/* ---- joining rank 0 ---- */

static ddp_status no_host(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    const struct joiner *joiner = joiner_of(gathering);
    double seconds = gathering->config->init_timeout_ms / 1000.0;
    if (joiner->gone[0] != '\0')
        return ddpi_error_set(err, DDP_E_TIMEOUT,
                              "after %.1f s rank 0 has not joined again: %s is gone", seconds,
                              joiner->gone);
    return ddpi_error_set(err, DDP_E_TIMEOUT, "after %.1f s rank 0 has not joined; missing: rank 0",
                          seconds);
}

/* Wait until there is a rank 0. */
static ddp_status read_host_card(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct joiner *joiner = joiner_of(gathering);
    struct ddpi_directory *directory = gathering->directory;
    struct ddpi_entry entry;
    struct ddpi_card card;
    ddp_status status =
        directory->ops->find(directory, ddpi_gathering_left_ms(gathering), &entry, err);
    if (status == DDP_E_NOT_FOUND)
        return no_host(gathering, err);
    if (status != DDP_OK)
        return status;
    if (entry.len > sizeof entry.card)
        entry.len = 0; /* longer than any card */
    if (!ddpi_card_decode(entry.card, entry.len, &card))
        return ddpi_card_refuse(entry.card, entry.len, 0, gathering->comm->rank, err);
    joiner->entry = entry;
    return ddpi_card_put(&card, ddpi_meeting_slot(gathering->meeting, 0))
               ? DDP_OK
               : ddpi_error_nomem(err, DDPI_CARD_SLOT);
}

/* The process at that address may not be the current rank 0. */
static bool host_has_changed(struct ddpi_gathering *gathering)
{
    const struct joiner *joiner = joiner_of(gathering);
    struct ddpi_entry entry;
    if (gathering->directory->ops->fixed)
        return gathering->directory->ops->patient;
    ddp_status status = gathering->directory->ops->find(gathering->directory, 0, &entry, NULL);
    if (status != DDP_OK)
        return status == DDP_E_NOT_FOUND;
    return entry.len != joiner->entry.len || memcmp(entry.card, joiner->entry.card, entry.len) != 0;
}

static ddp_status forget_host(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    const struct joiner *joiner = joiner_of(gathering);
    return gathering->directory->ops->withdraw(gathering->directory, &joiner->entry, err);
}

/* See what has become of the attempt; *@ret_over: give it up. */
static ddp_status check_attempt(struct ddpi_gathering *gathering, bool *ret_over,
                                struct ddp_error *err)
{
    struct joiner *joiner = joiner_of(gathering);
    struct ddpi_meeting *meeting = gathering->meeting;
    const struct ddpi_attempt *attempt = &meeting->attempt;
    struct pollfd pollfd = {.fd = ddpi_meeting_wait_fd(meeting), .events = POLLIN};
    uint32_t left_ms = ddpi_gathering_left_ms(gathering);
    if (attempt->edge.broken != NULL) {
        *ret_over = true;
        if (!gathering->directory->ops->fixed)
            memcpy(joiner->gone, attempt->edge.peer_name, sizeof joiner->gone);
        return forget_host(gathering, err);
    }
    if (left_ms == 0)
        return ddpi_error_set(
            err, DDP_E_TIMEOUT,
            "after %.1f s %s has not accepted this rank: it is stopped, or too busy",
            gathering->config->init_timeout_ms / 1000.0, attempt->edge.peer_name);
    if (attempt->stage ==
        DDPI_ATTEMPT_QUEUE) { /* rank 0 has hung up: the card may be that of another one now */
        *ret_over = true;
        joiner->pause_ms = joiner->pause_ms == 0 ? PAUSE_MIN_MS : 2 * joiner->pause_ms;
        if (joiner->pause_ms > PAUSE_MAX_MS)
            joiner->pause_ms = PAUSE_MAX_MS;
        pollfd.fd = -1;
        left_ms = left_ms < joiner->pause_ms ? left_ms : joiner->pause_ms;
    }
    (void)!poll(&pollfd, 1, (int)left_ms);
    return DDP_OK;
}

static ddp_status connect_to_host(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct joiner *joiner = joiner_of(gathering);
    struct ddpi_arrival arrival = {0};
    bool over = false;
    ddp_status status = ddpi_meeting_ask(gathering->meeting, 0, DDPI_LINK_JOIN, err);
    while (status == DDP_OK && arrival.edge == NULL && !over) {
        status = ddpi_meeting_advance(gathering->meeting, &arrival, err);
        if (status == DDP_OK && arrival.edge == NULL)
            status = check_attempt(gathering, &over, err);
    }
    ddpi_attempt_drop(gathering->meeting);
    joiner->host = arrival.edge;
    return status == DDP_E_DENIED && host_has_changed(gathering) ? DDP_OK : status;
}

static ddp_status find_host(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct joiner *joiner = joiner_of(gathering);
    ddp_status status = DDP_OK;
    while (status == DDP_OK && joiner->host == NULL) {
        status = read_host_card(gathering, err);
        if (status == DDP_OK)
            status = connect_to_host(gathering, err);
    }
    if (status != DDP_OK)
        return status;
    ddpi_gathering_send_card(gathering, joiner->host, gathering->comm->rank);
    return ddpi_gathering_watch(gathering, joiner->host, err);
}

/* ---- messages of rank 0 ---- */

/* No rank joins here. */
static ddp_status joiner_arrive(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                struct ddp_error *err)
{
    (void)gathering;
    (void)err;
    ddpi_edge_destroy(edge);
    return DDP_OK;
}

static ddp_status take_neighbour_card(struct ddpi_gathering *gathering,
                                      const struct ddpi_memo *memo, struct ddp_error *err)
{
    const struct ddp_comm *comm = gathering->comm;
    uint8_t slot[DDPI_CARD_SLOT];
    struct ddpi_card card;
    memcpy(slot, memo->text, sizeof slot);
    bool neighbour = memo->tag == ddpi_ring_next(comm->rank, comm->world_size) ||
                     memo->tag == ddpi_ring_prev(comm->rank, comm->world_size);
    if (!neighbour || !ddpi_card_get(slot, &card))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "rank 0 sent an invalid card");
    memcpy(ddpi_meeting_slot(gathering->meeting, memo->tag), slot, sizeof slot);
    joiner_of(gathering)->neighbours++;
    return DDP_OK;
}

static ddp_status joiner_take(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                              const struct ddpi_memo *memo, struct ddp_error *err)
{
    switch ((enum ddpi_notice)memo->notice) {
    case DDPI_NOTICE_FAILED:
        gathering->over = true;
        return ddpi_error_set(err, ddpi_memo_failure(memo), "%s", memo->text);
    case DDPI_NOTICE_CARD:
        return take_neighbour_card(gathering, memo, err);
    case DDPI_NOTICE_ASK:
        ddpi_gathering_send(edge, DDPI_NOTICE_WAITING, 0);
        return DDP_OK;
    case DDPI_NOTICE_GO:
        gathering->over = true;
        if (gathering->meeting->card.shm)
            ddpi_comm_allow_spins(gathering->comm, memo->tag);
        return DDP_OK;
    default:
        return DDP_OK;
    }
}

static ddp_status joiner_overdue(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct joiner *joiner = joiner_of(gathering);
    if (joiner->asked)
        return ddpi_error_set(err, DDP_E_TIMEOUT,
                              "after %.1f s %s does not answer: it is stopped, or too busy",
                              gathering->config->init_timeout_ms / 1000.0, joiner->host->peer_name);
    joiner->asked = true;
    ddpi_gathering_send(joiner->host, DDPI_NOTICE_ASK, gathering->config->init_timeout_ms);
    gathering->wake_ms = ddpi_monotonic_ms() + WORD_MS;
    return DDP_OK;
}

static const struct ddpi_gathering_role joiner_role = {
    .arrive = joiner_arrive, .take = joiner_take, .overdue = joiner_overdue};

/* ---- all of it ---- */

static ddp_status join_gathering(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct joiner *joiner = joiner_of(gathering);
    ddp_status status = find_host(gathering, err);
    while (status == DDP_OK && joiner->neighbours < DDPI_RING_EDGES)
        status = ddpi_gathering_turn(gathering, err);
    if (status == DDP_OK)
        status = ddpi_gathering_watch_listeners(gathering, err);
    if (status == DDP_OK)
        status = ddpi_gathering_begin_ring(gathering, err);
    while (status == DDP_OK && !ddpi_gathering_stands(gathering))
        status = ddpi_gathering_turn(gathering, err);
    if (status == DDP_OK)
        ddpi_gathering_send(joiner->host, DDPI_NOTICE_STANDS, 0);
    while (status == DDP_OK && !gathering->over)
        status = ddpi_gathering_turn(gathering, err);
    return status;
}

/* Tell rank 0 why this rank gives up, unless it knows or is gone; if it is gone, forget it. */
ddp_status ddpi_gather_join(const struct ddpi_gathering *common, struct ddp_error *err)
{
    struct joiner joiner = {.gathering = *common};
    joiner.gathering.role = &joiner_role;
    ddp_status status = join_gathering(&joiner.gathering, err);
    if (status != DDP_OK)
        ddpi_error_advise_descriptors(err, status);
    if (joiner.host == NULL)
        return status;
    if (status != DDP_OK && !joiner.gathering.over)
        ddpi_gathering_send_failed(&joiner.gathering, joiner.host, err);
    if (status != DDP_OK && joiner.host->gone_ms != 0)
        (void)!forget_host(&joiner.gathering, NULL);
    ddpi_edge_destroy(joiner.host);
    return status;
}
