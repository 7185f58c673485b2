/*
 * roster.c - the ranks that rank 0 has gathered. Owns the table.
 */
#include "roster.h"

#include "error.h"
#include "mem.h"

#include <stdio.h>
#include <string.h>

enum { NAMED_MAX = 8, NAMES_TEXT = 128 };

ddp_status ddpi_roster_init(struct ddpi_roster *roster, const struct ddpi_card *own,
                            struct ddp_error *err)
{
    *roster = (struct ddpi_roster){.world_size = own->world_size, .came = 1};
    roster->places = ddpi_calloc(roster->world_size, sizeof *roster->places);
    if (roster->places == NULL)
        return ddpi_error_nomem(err,
                                (unsigned long long)roster->world_size * sizeof *roster->places);
    roster->places[0] = (struct ddpi_roster_place){.came = true, .card = *own};
    return DDP_OK;
}

void ddpi_roster_finish(struct ddpi_roster *roster)
{
    ddpi_free(roster->places);
    roster->places = NULL;
}

ddp_status ddpi_roster_twice(const struct ddpi_roster *roster, uint32_t rank, struct ddp_error *err)
{
    if (rank >= roster->world_size)
        return ddpi_error_set(
            err, DDP_E_MISMATCH,
            "rank %u joins a larger world than that of rank 0, which has %u ranks", rank,
            roster->world_size);
    const struct ddpi_roster_place *place = &roster->places[rank];
    if (!place->came)
        return ddpi_error_set(err, DDP_E_MISMATCH, "two processes join as rank %u", rank);
    return ddpi_error_set(err, DDP_E_MISMATCH, "two processes join as rank %u; one is pid %u on %s",
                          rank, place->card.pid, place->card.node);
}

ddp_status ddpi_roster_enter(struct ddpi_roster *roster, uint32_t rank,
                             const uint8_t slot[DDPI_CARD_SLOT], struct ddp_error *err)
{
    struct ddpi_card card;
    if (!ddpi_card_get(slot, &card))
        return ddpi_card_refuse_slot(slot, rank, 0, err);
    if (card.world_size != roster->world_size || rank >= roster->world_size)
        return ddpi_error_set(
            err, DDP_E_MISMATCH,
            "rank %u joins a world of %u ranks, rank 0 one of %u (pid %u on %s, pid %u on %s)",
            rank, card.world_size, roster->world_size, card.pid, card.node,
            roster->places[0].card.pid, roster->places[0].card.node);
    if (roster->places[rank].came)
        return ddpi_roster_twice(roster, rank, err);
    roster->places[rank] = (struct ddpi_roster_place){.came = true, .card = card};
    roster->came++;
    return DDP_OK;
}

void ddpi_roster_stand(struct ddpi_roster *roster, uint32_t rank)
{
    roster->standing += !roster->places[rank].stands;
    roster->places[rank].stands = true;
}

static bool share_machine(const struct ddpi_roster *roster, uint32_t a, uint32_t b)
{
    return strcmp(roster->places[a].card.machine, roster->places[b].card.machine) == 0;
}

/* Count each machine once, for all its ranks. */
uint32_t ddpi_roster_local(struct ddpi_roster *roster, uint32_t rank)
{
    uint32_t count = roster->places[rank].local_ranks;
    if (count > 0)
        return count;
    for (uint32_t i = 0; i < roster->world_size; i++)
        count += share_machine(roster, i, rank);
    for (uint32_t i = 0; i < roster->world_size; i++)
        if (share_machine(roster, i, rank))
            roster->places[i].local_ranks = count;
    return count;
}

typedef bool is_meant(const struct ddpi_roster_place *place);

static bool is_missing(const struct ddpi_roster_place *place)
{
    return !place->came;
}

static bool is_silent(const struct ddpi_roster_place *place)
{
    return !place->stands && !place->answered;
}

static bool is_alone(const struct ddpi_roster_place *place)
{
    return !place->stands;
}

/* "2, 5 and 7", or "2, 5, 6 and 12 more"; returns how many there are. */
static uint32_t list(const struct ddpi_roster *roster, is_meant *meant, char text[NAMES_TEXT])
{
    uint32_t total = 0, named = 0;
    for (uint32_t rank = 0; rank < roster->world_size; rank++)
        total += meant(&roster->places[rank]);
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t rank = 0; rank < roster->world_size && named < NAMED_MAX; rank++) {
        if (!meant(&roster->places[rank]))
            continue;
        const char *glue = named == 0 ? "" : named + 1 == total ? " and " : ", ";
        used += (size_t)snprintf(text + used, NAMES_TEXT - used, "%s%u", glue, rank);
        named++;
    }
    if (total > named)
        snprintf(text + used, NAMES_TEXT - used, " and %u more", total - named);
    return total;
}

ddp_status ddpi_roster_overdue(const struct ddpi_roster *roster, uint32_t timeout_ms,
                               struct ddp_error *err)
{
    char names[NAMES_TEXT];
    double seconds = timeout_ms / 1000.0;
    if (list(roster, is_missing, names) > 0)
        return ddpi_error_set(err, DDP_E_TIMEOUT,
                              "after %.1f s %u of %u ranks have joined; missing: rank %s", seconds,
                              roster->came, roster->world_size, names);
    if (list(roster, is_silent, names) > 0)
        return ddpi_error_set(err, DDP_E_TIMEOUT,
                              "after %.1f s %u of %u ranks are connected to their neighbours; "
                              "stopped, or too busy to answer: rank %s",
                              seconds, roster->standing, roster->world_size, names);
    list(roster, is_alone, names);
    return ddpi_error_set(err, DDP_E_TIMEOUT,
                          "after %.1f s %u of %u ranks are connected to their neighbours; these "
                          "answer but are not connected yet: rank %s",
                          seconds, roster->standing, roster->world_size, names);
}
