/*
 * api_impl.h - what the files of this folder offer each other, for this folder alone.
 */
#ifndef DDPI_API_IMPL_H
#define DDPI_API_IMPL_H

#include "communicator.h"

/* The memory types of this library (memory.h). Host memory is the last one. */
extern const struct ddpi_memory_type *const ddpi_memory_types[];

/* ---- a communicator of some ranks of another one, while it is being made (child.c) ---- */

/* First it has a card, by which others will reach it, then its rank and the cards of all. */

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

/* ---- what ranks tell each other while they make another communicator (parent_call.c) ---- */

/* Operations of the parent, and whether each rank could do its part. */

/* Carry out operation @call of @parent on bytes in host memory. Blocks. */
ddp_status ddpi_parent_call(struct ddp_comm *parent, const struct ddpi_call *call, const void *send,
                            void *recv, struct ddp_error *err);

/* This rank has no memory for @bytes, and cannot take part: @parent fails, so that no rank waits
 * for it. */
ddp_status ddpi_parent_give_up(struct ddp_comm *parent, unsigned long long bytes,
                               struct ddp_error *err);

enum { DDPI_FINDING_TEXT = 196 };

/* How a rank's part has ended, as bytes. */
struct ddpi_finding {
    uint8_t status[4];
    char text[DDPI_FINDING_TEXT];
};

void ddpi_finding_fill(struct ddpi_finding *finding, ddp_status status, const char *text);

/* The same as a result. Whatever a rank sends that is no failure of a call is DDP_E_PROTOCOL. */
ddp_status ddpi_finding_result(const struct ddpi_finding *finding, struct ddp_error *err);

/* Numbers as bytes, the lowest first. */
void ddpi_put32(uint8_t bytes[4], uint32_t value);
uint32_t ddpi_get32(const uint8_t bytes[4]);

#endif
