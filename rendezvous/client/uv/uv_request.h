/*
 * uv_request.h - requests and results of the asynchronous client.
 */
#ifndef DDPI_UV_REQUEST_H
#define DDPI_UV_REQUEST_H

#include "uv_state.h"

/* The hook `done` of the client core. */
void ddpi_uv_request_done(void *ctx, struct ddpi_client_request *request,
                          const struct ddpi_message *reply);

/* Answer the requests that ddp_store_uv_cancel() has marked. */
void ddpi_uv_cancel_marked(ddp_store_uv *store);

#endif
