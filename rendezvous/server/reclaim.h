/*
 * reclaim.h - deletes what ended jobs have left behind, when room is short.
 */
#ifndef DDPI_RECLAIM_H
#define DDPI_RECLAIM_H

#include "server_state.h"

/* Delete some of it, if room is short; true: there is more. */
bool ddpi_server_make_room(struct ddpi_server *server);

#endif
