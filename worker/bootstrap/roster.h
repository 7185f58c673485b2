/*
 * roster.h - what rank 0 knows of those whom it gathers: who has come, with which card, and who
 * stands in the ring; and what is to be said when one does not fit, or is late. Does no I/O.
 */
#ifndef DDPI_ROSTER_H
#define DDPI_ROSTER_H

#include "peer_card.h"

struct ddpi_roster_place {
    bool came;
    bool stands;     /* both its edges of the ring do */
    bool answered;   /* since it was asked why it does not stand */
    uint32_t beside; /* see ddpi_roster_beside(); 0: not counted yet */
    struct ddpi_card card;
};

struct ddpi_roster {
    uint32_t world_size;
    uint32_t came;
    uint32_t standing;
    struct ddpi_roster_place *places; /* by rank */
};

/* Rank 0 has come, with @own. Give back what ddpi_roster_init() has made, or zeros. */
ddp_status ddpi_roster_init(struct ddpi_roster *roster, const struct ddpi_card *own,
                            struct ddp_error *err);
void ddpi_roster_finish(struct ddpi_roster *roster);

/* Somebody comes as @rank with the card in @slot. Anything but DDP_OK: all have to hear why. */
ddp_status ddpi_roster_enter(struct ddpi_roster *roster, uint32_t rank,
                             const uint8_t slot[DDPI_CARD_SLOT], struct ddp_error *err);

/* Two come as @rank, which may be one that there is not; one of them may have told who it is. */
ddp_status ddpi_roster_twice(const struct ddpi_roster *roster, uint32_t rank,
                             struct ddp_error *err);

void ddpi_roster_stand(struct ddpi_roster *roster, uint32_t rank);

/* How many ranks run on the machine of @rank, with it; all have come. */
uint32_t ddpi_roster_beside(struct ddpi_roster *roster, uint32_t rank);

/* @timeout_ms have passed, and not all have come, or not all stand: DDP_E_TIMEOUT with who. */
ddp_status ddpi_roster_overdue(const struct ddpi_roster *roster, uint32_t timeout_ms,
                               struct ddp_error *err);

#endif
