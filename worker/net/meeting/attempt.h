/*
 * attempt.h - the connecting side of a meeting: an edge that this rank has asked for.
 */
#ifndef DDPI_ATTEMPT_H
#define DDPI_ATTEMPT_H

#include "meeting_state.h"

void ddpi_attempt_clear(struct ddpi_attempt *attempt);

/* Close what the attempt of @meeting holds, and clear it. */
void ddpi_attempt_drop(struct ddpi_meeting *meeting);

/* Take the attempt as far as it goes now; *@ret_edge is the edge once it exists. */
ddp_status ddpi_attempt_push(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                             struct ddp_error *err);

/* Send @count messages to the rank that is asked for an edge: it may have made the edge already,
 * and this rank not heard so. */
void ddpi_attempt_tell(const struct ddpi_meeting *meeting, const struct ddpi_memo *memos,
                       unsigned count);

/* Set rank, name and address of the peer of @edge. */
struct ddpi_edge *ddpi_edge_name(struct ddpi_edge *edge, uint32_t peer,
                                 const struct ddpi_card *card);

#endif
