/*
 * uv_later.h - the asynchronous client's timer for what is built upon it: handle.c,
 * which has no libuv of its own.
 */
#ifndef DDPI_UV_LATER_H
#define DDPI_UV_LATER_H

#include <ddprun/store_uv.h>

/* Call @due with @data from the loop in @delay_ms, once, unless the handle is being closed then.
 * Another call takes the place of one that has not come. */
void ddpi_uv_later(ddp_store_uv *store, uint32_t delay_ms, void (*due)(void *data), void *data);

/* A number by chance; 0 where the system has none. */
uint32_t ddpi_uv_random(void);

#endif
