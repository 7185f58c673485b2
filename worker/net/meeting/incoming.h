/*
 * incoming.h - the accepting side of a meeting: connections that others have made to this rank.
 */
#ifndef DDPI_INCOMING_H
#define DDPI_INCOMING_H

#include "meeting_state.h"

/* Watch the listeners; and accept again when a pause is over. */
ddp_status ddpi_incoming_listen(struct ddpi_meeting *meeting, struct ddp_error *err);
void ddpi_incoming_resume(struct ddpi_meeting *meeting);

/* Accept one connection of @listener. */
ddp_status ddpi_incoming_accept(struct ddpi_meeting *meeting, int listener, struct ddp_error *err);

/* Read what has come from @incoming, the data of an event of meeting->events. When it has brought
 * all that an edge takes, *@arrival is the edge. */
ddp_status ddpi_incoming_read(struct ddpi_meeting *meeting, void *incoming,
                              struct ddpi_arrival *arrival, struct ddp_error *err);

/* The edge exists for which this rank has @asked @rank by @link, or @rank this one: drop whatever
 * else either side has begun to make it. */
void ddpi_incoming_supersede(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                             bool asked);

void ddpi_incoming_drop_all(struct ddpi_meeting *meeting);

#endif
