/*
 * leader.h - how the threads of a blocking handle share one connection: one of them leads. All
 * functions are called with the lock held.
 */
#ifndef DDPI_LEADER_H
#define DDPI_LEADER_H

#include "blocking_state.h"

/* Wait until @waiter is ready or @until_ms has come; lead or follow meanwhile. */
void ddpi_store_await(ddp_store *store, struct waiter *waiter, uint64_t until_ms);
/* Lead for one turn, for @waiter (NULL: for the first connection): send, then wait for input at
 * most until @until_ms. */
void ddpi_store_lead(ddp_store *store, const struct waiter *waiter, uint64_t until_ms);

/* Before requests are submitted: read a connection that was idle, as it may have ended. */
void ddpi_store_read_if_idle(ddp_store *store, uint64_t now_ms);
/* After requests were submitted: if another thread leads, send them here, and poke the leader for
 * what only it can do. */
void ddpi_store_send_beside_leader(ddp_store *store, uint64_t now_ms);
/* After requests were canceled: tell the server, and let the leader look again. */
void ddpi_store_send_cancellations(ddp_store *store);

void ddpi_waiter_make_ready(struct waiter *waiter);

#endif
