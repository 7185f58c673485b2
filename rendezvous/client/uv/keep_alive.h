/*
 * keep_alive.h - sessions that the asynchronous client keeps alive.
 */
#ifndef DDPI_KEEP_ALIVE_H
#define DDPI_KEEP_ALIVE_H

#include "uv_state.h"

struct kept_session;

/* @hold: as DDP_STORE_HOLD says. */
struct kept_session *ddpi_uv_kept_create(uint32_t lease_ms, bool hold);
void ddpi_uv_kept_destroy(struct kept_session *kept); /* NULL is allowed */

/* Keep @session alive from now on, by @kept. */
void ddpi_uv_keep(ddp_store_uv *store, struct kept_session *kept,
                  const struct ddp_store_session *session);
/* Stop keeping @session alive, as the caller closes it. */
void ddpi_uv_unkeep(ddp_store_uv *store, const struct ddp_store_session *session);
void ddpi_uv_unkeep_all(ddp_store_uv *store);

/* A keep-alive was answered. */
void ddpi_uv_keep_alive_done(ddp_store_uv *store, struct kept_session *kept, ddp_status status);
/* A new connection: send a keep-alive for each session first. */
void ddpi_uv_keep_alive_all(ddp_store_uv *store);
/* Send the keep-alives that are due. */
void ddpi_uv_keep_alive_due(ddp_store_uv *store, uint64_t now_ms);
/* When the next one is due; UINT64_MAX: none. */
uint64_t ddpi_uv_keep_alive_next(const ddp_store_uv *store);

/* Some session is held: the server takes the end of the connection for the end of this process. */
bool ddpi_uv_holds_session(const ddp_store_uv *store);

#endif
