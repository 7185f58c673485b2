/*
 * gathering_host.c - rank 0 while it gathers the others: accepts them, tells each what it needs,
 * and judges. Owns the connections to them and the roster, and withdraws its card before it
 * returns.
 */
#include "attempt.h"
#include "clock.h"
#include "error.h"
#include "gathering.h"
#include "mem.h"
#include "roster.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_MS = 1000, LOOK_EVERY_MS = 500 };

struct host {
    struct ddpi_gathering gathering;
    struct ddpi_roster roster;
    /* By rank; then one whose rank does not exist, and one that has come twice. */
    struct ddpi_edge **joiners;
    uint32_t places;
    struct ddpi_entry entry; /* the own card as it is in the directory */
    bool published;          /* it may be there */
    bool asked;              /* ranks that do not stand yet were asked whether they live */
};

static struct host *host_of(struct ddpi_gathering *gathering)
{
    return ddpi_container_of(gathering, struct host, gathering);
}

/* ---- what other ranks do ---- */

/* Accept every rank, so that one that does not fit is told why, and all others with it. A rank may
 * come twice because its first process has died, which may not be known yet. */
static ddp_status host_arrive(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                              struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    uint32_t world_size = host->roster.world_size, rank = edge->peer;
    struct ddpi_edge **place = &host->joiners[rank < world_size ? rank : world_size];
    snprintf(edge->peer_name, sizeof edge->peer_name, "rank %u", rank);
    if (*place != NULL) {
        host->joiners[world_size + 1] = edge;
        ddp_status status = ddpi_gathering_read(gathering, *place, err);
        if (status != DDP_OK)
            return status;
        gathering->judged = true;
        return ddpi_roster_twice(&host->roster, rank, err);
    }
    *place = edge;
    ddp_status status = ddpi_gathering_watch(gathering, edge, err);
    return status == DDP_OK ? ddpi_gathering_read(gathering, edge, err) : status;
}

static ddp_status take_joiner_card(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                   const struct ddpi_memo *memo, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    uint8_t slot[DDPI_CARD_SLOT];
    memcpy(slot, memo->text, sizeof slot);
    ddp_status status = ddpi_roster_enter(&host->roster, edge->peer, slot, err);
    if (status != DDP_OK)
        return status;
    memcpy(ddpi_meeting_slot(gathering->meeting, edge->peer), slot, sizeof slot);
    ddpi_edge_name(edge, edge->peer, &host->roster.places[edge->peer].card);
    return DDP_OK;
}

static ddp_status call_time(struct ddpi_gathering *gathering, uint32_t timeout_ms,
                            struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    if (host->roster.came < host->roster.world_size)
        return ddpi_roster_overdue(&host->roster, timeout_ms, err);
    if (host->asked)
        return DDP_OK;
    host->asked = true;
    host->roster.places[0].answered = true;
    for (uint32_t rank = 1; rank < host->roster.world_size; rank++)
        ddpi_gathering_send(host->joiners[rank], DDPI_NOTICE_ASK, 0);
    gathering->wake_ms = ddpi_monotonic_ms() + ANSWER_MS;
    return DDP_OK;
}

static ddp_status host_overdue(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    return host->asked ? ddpi_roster_overdue(&host->roster, gathering->config->init_timeout_ms, err)
                       : call_time(gathering, gathering->config->init_timeout_ms, err);
}

static ddp_status host_take(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                            const struct ddpi_memo *memo, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    bool came = edge->peer < host->roster.world_size && host->roster.places[edge->peer].came;
    switch ((enum ddpi_notice)memo->notice) {
    case DDPI_NOTICE_FAILED:
        return ddpi_error_set(err, ddpi_memo_failure(memo), "%s", memo->text);
    case DDPI_NOTICE_CARD:
        return take_joiner_card(gathering, edge, memo, err);
    case DDPI_NOTICE_ASK: /* the time of one rank is up, and so is that of all */
        return call_time(gathering, memo->tag, err);
    case DDPI_NOTICE_STANDS:
        if (came)
            ddpi_roster_stand(&host->roster, edge->peer);
        return DDP_OK;
    case DDPI_NOTICE_WAITING:
        if (came)
            host->roster.places[edge->peer].answered = true;
        return DDP_OK;
    default:
        return DDP_OK;
    }
}

static const struct ddpi_gathering_role host_role = {
    .arrive = host_arrive, .take = host_take, .overdue = host_overdue};

/* ---- what rank 0 does ---- */

static ddp_status host_open(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    const struct ddpi_card *own = &gathering->meeting->card;
    ddp_status status = ddpi_roster_init(&host->roster, own, err);
    if (status != DDP_OK)
        return status;
    host->places = own->world_size + 2;
    host->joiners = ddpi_calloc(host->places, sizeof(struct ddpi_edge *));
    if (host->joiners == NULL || !ddpi_entry_fill(&host->entry, own))
        return ddpi_error_nomem(err, host->places * sizeof(struct ddpi_edge *));
    gathering->meeting->takes_joiners = true;
    return ddpi_gathering_watch_listeners(gathering, err);
}

static ddp_status publish_card(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    struct ddpi_directory *directory = gathering->directory;
    host->published = true;
    if (directory->ops->loses_entries)
        gathering->look_ms = ddpi_monotonic_ms() + LOOK_EVERY_MS;
    return directory->ops->publish(directory, &host->entry, ddpi_gathering_left_ms(gathering), err);
}

/* From time to time: a rank that meant the card of a dead rank 0 may have removed this one. */
static ddp_status look_after_card(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct ddpi_directory *directory = gathering->directory;
    struct ddpi_entry found;
    uint64_t now = ddpi_monotonic_ms();
    if (now < gathering->look_ms)
        return DDP_OK;
    gathering->look_ms = now + LOOK_EVERY_MS;
    ddp_status status = directory->ops->find(directory, 0, &found, err);
    return status == DDP_E_NOT_FOUND ? publish_card(gathering, err) : status;
}

static ddp_status withdraw_card(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    if (!host->published)
        return DDP_OK;
    host->published = false;
    gathering->look_ms = UINT64_MAX;
    return gathering->directory->ops->withdraw(gathering->directory, &host->entry, err);
}

static void send_neighbour_cards(struct ddpi_gathering *gathering)
{
    const struct host *host = host_of(gathering);
    uint32_t world_size = host->roster.world_size;
    for (uint32_t rank = 1; rank < world_size; rank++) {
        ddpi_gathering_send_card(gathering, host->joiners[rank], ddpi_ring_next(rank, world_size));
        ddpi_gathering_send_card(gathering, host->joiners[rank], ddpi_ring_prev(rank, world_size));
    }
}

static ddp_status make_ring(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    ddp_status status = ddpi_gathering_begin_ring(gathering, err);
    while (status == DDP_OK && host->roster.standing < host->roster.world_size) {
        if (ddpi_gathering_stands(gathering))
            ddpi_roster_stand(&host->roster, 0);
        if (host->roster.standing < host->roster.world_size)
            status = ddpi_gathering_turn(gathering, err);
    }
    return status;
}

static void send_go(struct ddpi_gathering *gathering)
{
    struct host *host = host_of(gathering);
    for (uint32_t rank = 1; rank < host->roster.world_size; rank++)
        ddpi_gathering_send(host->joiners[rank], DDPI_NOTICE_GO,
                            ddpi_roster_local(&host->roster, rank));
    if (gathering->meeting->card.shm)
        ddpi_comm_allow_spins(gathering->comm, ddpi_roster_local(&host->roster, 0));
}

static ddp_status host_gather(struct ddpi_gathering *gathering, struct ddp_error *err)
{
    struct host *host = host_of(gathering);
    ddp_status status = host_open(gathering, err);
    if (status == DDP_OK)
        status = publish_card(gathering, err);
    while (status == DDP_OK && host->roster.came < host->roster.world_size) {
        status = ddpi_gathering_turn(gathering, err);
        if (status == DDP_OK)
            status = look_after_card(gathering, err);
    }
    gathering->meeting->takes_joiners = false;
    ddpi_meeting_close_join_listener(gathering->meeting);
    if (status == DDP_OK)
        status = withdraw_card(gathering, err);
    if (status != DDP_OK)
        return status;
    send_neighbour_cards(gathering);
    status = make_ring(gathering, err);
    if (status == DDP_OK)
        send_go(gathering);
    return status;
}

static void host_close(struct host *host)
{
    for (uint32_t i = 0; host->joiners != NULL && i < host->places; i++)
        if (host->joiners[i] != NULL)
            ddpi_edge_destroy(host->joiners[i]);
    ddpi_free(host->joiners);
    ddpi_roster_finish(&host->roster);
}

ddp_status ddpi_gather_host(const struct ddpi_gathering *common, struct ddp_error *err)
{
    struct host host = {.gathering = *common};
    host.gathering.role = &host_role;
    ddp_status status = host_gather(&host.gathering, err);
    if (status != DDP_OK) {
        ddpi_error_advise_descriptors(err, status);
        for (uint32_t i = 0; host.joiners != NULL && i < host.places; i++)
            ddpi_gathering_send_failed(&host.gathering, host.joiners[i], err);
        (void)!withdraw_card(&host.gathering, NULL);
    }
    host_close(&host);
    return status;
}
