/*
 * own_address.h - at which of its addresses a rank listens for others: the one place where that is
 * chosen.
 */
#ifndef DDPI_OWN_ADDRESS_H
#define DDPI_OWN_ADDRESS_H

#include "parse.h"

#include <ddprun/status.h>
#include <ifaddrs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Whether @list, in NCCL's syntax, means the interface @name: names that a name of the list, which
 * has commas, is the begin of; behind "=" the names themselves; behind "^" all others, and behind
 * "^=" all but these very names. */
bool ddpi_interface_is_meant(const char *list, const char *name);

/* The first address of an interface of @addresses (getifaddrs(3)) that is up and that @list means;
 * IPv4 first. Link-local addresses of IPv6 are left out. */
bool ddpi_interface_address(const struct ifaddrs *addresses, const char *list,
                            struct sockaddr_storage *ret);

/* The host as digits, and the port, of @address. */
void ddpi_address_endpoint(const struct sockaddr_storage *address, struct ddpi_endpoint *ret);

/* With @interfaces (a list, not NULL or empty), the address of the first that is meant. Else the
 * one from which this machine reaches @host; or, for an empty @host, the one from which it reaches
 * the world: that of the default route, or of the first interface that is no bridge of containers.
 * The port is 0. Sends nothing. */
ddp_status ddpi_own_address(const char *interfaces, const char *host, uint16_t port,
                            struct sockaddr_storage *ret, struct ddp_error *err);

#endif
