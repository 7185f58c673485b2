/*
 * roster.h - what rank 0 knows of the ranks that it gathers: which have joined, with which cards,
 * and which stand in the ring; and the sentence when a rank does not fit, or is late. Does no I/O.
 */
#ifndef DDPI_ROSTER_H
#define DDPI_ROSTER_H

#include "peer_card.h"

struct ddpi_roster_place {
    bool came;
    bool stands;          /* both its ring edges exist */
    bool answered;        /* since it was asked whether it lives */
    uint32_t local_ranks; /* see ddpi_roster_local(); 0: not counted yet */
    struct ddpi_card card;
};

struct ddpi_roster {
    uint32_t world_size;
    uint32_t came;
    uint32_t standing;
    struct ddpi_roster_place *places; /* by rank */
};

/* Begin with rank 0 and its card @own. Finish what ddpi_roster_init() has made, or zeros. */
ddp_status ddpi_roster_init(struct ddpi_roster *roster, const struct ddpi_card *own,
                            struct ddp_error *err);
void ddpi_roster_finish(struct ddpi_roster *roster);

/* A process joins as @rank with the card in @slot. Anything but DDP_OK: tell all ranks. */
ddp_status ddpi_roster_enter(struct ddpi_roster *roster, uint32_t rank,
                             const uint8_t slot[DDPI_CARD_SLOT], struct ddp_error *err);

/* Two processes join as @rank, or @rank does not exist; one of them may have sent its card. */
ddp_status ddpi_roster_twice(const struct ddpi_roster *roster, uint32_t rank,
                             struct ddp_error *err);

void ddpi_roster_stand(struct ddpi_roster *roster, uint32_t rank);

/* How many ranks run on the machine of @rank, itself included. All have joined. */
uint32_t ddpi_roster_local(struct ddpi_roster *roster, uint32_t rank);

/* @timeout_ms have passed, and not all have joined, or not all stand: DDP_E_TIMEOUT with their
 * names. */
ddp_status ddpi_roster_overdue(const struct ddpi_roster *roster, uint32_t timeout_ms,
                               struct ddp_error *err);

#endif
