/*
 * listen.h - a listening socket, made and named without libuv, so that every failure is known
 * before there is a handle to be closed.
 */
#ifndef DDPI_LISTEN_H
#define DDPI_LISTEN_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

/* Non-blocking, close-on-exec, listening on the first address of @host that can be had. @ret_text
 * is its "address:port". */
ddp_status ddpi_listen(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port,
                       char *ret_text, size_t text_size, struct ddp_error *err);

#endif
