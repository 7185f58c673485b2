/*
 * uv_handle.h - what the asynchronous client offers to round/, which has no libuv of its own.
 */
#ifndef DDPI_UV_HANDLE_H
#define DDPI_UV_HANDLE_H

#include <ddprun/store_uv.h>

/* Call @due(@data) from the loop in @delay_ms, once, unless the handle is being closed by then. A
 * second call replaces the first one if that is still to come. */
void ddpi_uv_later(ddp_store_uv *store, uint32_t delay_ms, void (*due)(void *data), void *data);

/* A random number; 0 if the system has none yet. */
uint32_t ddpi_uv_random(void);

#endif
