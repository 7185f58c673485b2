/*
 * blocking_watch.h - the blocking client's queue of events.
 */
#ifndef DDPI_BLOCKING_WATCH_H
#define DDPI_BLOCKING_WATCH_H

#include "blocking_state.h"

/* The `event` hook of the client core. */
ddp_status ddpi_store_on_event(void *ctx, struct ddpi_client_watch *watch,
                               const struct ddpi_message *message, struct ddp_error *err);

#endif
