/*
 * requests.h - the requests of admitted clients, and their replies.
 */
#ifndef DDPI_REQUESTS_H
#define DDPI_REQUESTS_H

#include "server_state.h"

/* Hooks of connections. */
bool ddpi_server_on_request(void *owner, struct ddpi_conn *conn,
                            const struct ddpi_message *request);
void ddpi_server_on_ahead(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys,
                          size_t count);
void ddpi_server_on_dirty(void *owner, struct ddpi_conn *conn);

/* The reply hook of the core. */
void ddpi_server_on_reply(void *ctx, struct ddpi_kv_client *client,
                          const struct ddpi_message *reply);

#endif
