/*
 * rank_names.c - names of ranks, from the cards that all ranks have. Owns nothing.
 */
#include "rank_names.h"

#include "attempt.h"

#include <stdio.h>

void ddpi_comm_rank_name(const struct ddp_comm *comm, uint32_t rank, char name[DDPI_PEER_NAME])
{
    struct ddpi_edge edge;
    struct ddpi_card card;
    if (ddpi_card_get(ddpi_meeting_slot(&comm->edges.meeting, rank), &card))
        snprintf(name, DDPI_PEER_NAME, "%s", ddpi_edge_name(&edge, rank, &card)->peer_name);
    else
        snprintf(name, DDPI_PEER_NAME, "rank %u", rank);
}

uint32_t ddpi_comm_list_ranks(const struct ddp_comm *comm,
                              bool (*is_listed)(const void *ctx, uint32_t rank), const void *ctx,
                              char names[DDPI_RANK_NAMES])
{
    enum { LAST_WORDS = 32 }; /* " and 4294967295 more" */
    uint32_t count = 0, named = 0, last = 0;
    names[0] = '\0';
    for (uint32_t rank = 0; rank < comm->world_size; rank++)
        if (is_listed(ctx, rank)) {
            count++;
            last = rank;
        }
    if (count == 1)
        ddpi_comm_rank_name(comm, last, names);
    if (count < 2)
        return count;
    size_t used = (size_t)snprintf(names, DDPI_RANK_NAMES, "ranks ");
    for (uint32_t rank = 0; rank < last && used < DDPI_RANK_NAMES - LAST_WORDS; rank++)
        if (is_listed(ctx, rank))
            used += (size_t)snprintf(names + used, DDPI_RANK_NAMES - used, "%s%u",
                                     named++ > 0 ? ", " : "", rank);
    if (count > named + 1)
        snprintf(names + used, DDPI_RANK_NAMES - used, " and %u more", count - named);
    else
        snprintf(names + used, DDPI_RANK_NAMES - used, " and %u", last);
    return count;
}
