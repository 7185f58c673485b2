/*
 * uv_connection.h - the asynchronous client's connection: name lookup, connecting, reading,
 * writing.
 */
#ifndef DDPI_UV_CONNECTION_H
#define DDPI_UV_CONNECTION_H

#include "uv_state.h"

/* The client core has a connection that it reads from and writes to. */
bool ddpi_uv_is_connected(const ddp_store_uv *store);

/* Make of the connection what the core's state demands: dial, try the next address, or close. */
void ddpi_uv_follow_state(ddp_store_uv *store, uint64_t now_ms);

/* Write the core's output. */
void ddpi_uv_send_output(ddp_store_uv *store, uint64_t now_ms);

/* Give up the lookup that is under way. Once started, it ends only when the resolver does. */
void ddpi_uv_leave_lookup(ddp_store_uv *store);

#endif
