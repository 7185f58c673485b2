/*
 * child.h - a communicator of some ranks of another one, while it is being made: first it has a
 * card, by which others will reach it, then its rank and the cards of all.
 */
#ifndef DDPI_CHILD_H
#define DDPI_CHILD_H

#include "communicator.h"

/* Listen as @parent does; the card is in @ret_child->edges.meeting. */
ddp_status ddpi_child_open(const struct ddp_comm *parent, struct ddp_comm **ret_child,
                           struct ddp_error *err);

/* The card of @child as others get it. false: no memory. */
bool ddpi_child_card(const struct ddp_comm *child, uint8_t slot[DDPI_CARD_SLOT]);

/* @child becomes @rank of @size. A child of one rank needs no listeners any more. */
ddp_status ddpi_child_place(struct ddp_comm *child, uint32_t rank, uint32_t size,
                            struct ddp_error *err);

/* @slot is the card of @rank, who is another rank of a placed @child. */
void ddpi_child_know(struct ddp_comm *child, uint32_t rank, const uint8_t slot[DDPI_CARD_SLOT]);

/* The cards of rank 0 and of both neighbours, at least, are known: derive the key of these ranks
 * from that of @parent and from the card of rank 0, which no other group has, and let ranks
 * connect. */
ddp_status ddpi_child_ready(struct ddp_comm *child, const struct ddp_comm *parent,
                            struct ddp_error *err);

#endif
