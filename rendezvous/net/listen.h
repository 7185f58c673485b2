/*
 * listen.h - listening sockets, created, checked and named without libuv, so that every failure is
 * known before a handle exists.
 */
#ifndef DDPI_LISTEN_H
#define DDPI_LISTEN_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A socket that listens on the first usable address of @host, close-on-exec and non-blocking. An
 * IPv6 socket accepts IPv6 only, so that 0.0.0.0 and [::] can share a port.
 *
 * DDP_E_DENIED: with @loopback_only, the address is not one of this machine alone.
 */
ddp_status ddpi_listen(const char *host, uint16_t port, bool loopback_only, int *ret_fd,
                       struct ddp_error *err);

/* Check that an inherited descriptor is such a socket; the same results. */
ddp_status ddpi_listen_check(int fd, bool loopback_only, struct ddp_error *err);

/* "address:port" and the port of a socket that ddpi_listen() or ddpi_listen_check() approved. */
void ddpi_listen_name(int fd, char *text, size_t size, uint16_t *ret_port);

#endif
