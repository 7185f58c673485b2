/*
 * route.h - asks the kernel which address of this machine leads to another one. Nothing is sent
 * there.
 */
#ifndef DDPI_ROUTE_H
#define DDPI_ROUTE_H

#include <ddprun/status.h>
#include <stdint.h>
#include <sys/socket.h>

/* An address of documentation: only a default route leads there. */
#define DDPI_THE_WORLD "192.0.2.1"

/* The address from which this machine reaches @host, a name or an address, with a @port that is not
 * 0. Blocks while the system's resolver does. DDP_E_UNREACHABLE, DDP_E_SYSTEM: there is no such
 * host, or no route. */
ddp_status ddpi_source_address(const char *host, uint16_t port, struct sockaddr_storage *ret,
                               struct ddp_error *err);

/* The first address of @host to which this machine has a route. */
ddp_status ddpi_target_address(const char *host, uint16_t port, struct sockaddr_storage *ret,
                               struct ddp_error *err);

#endif
