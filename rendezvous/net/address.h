/*
 * address.h - the address of a host as bytes that can be compared, independent of the socket
 * family.
 */
#ifndef DDPI_ADDRESS_H
#define DDPI_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Two addresses are equal if all bytes are. IPv4 is stored as ::ffff:a.b.c.d, a link-local address
 * with its interface. All zero: no address. */
struct ddpi_address {
    uint8_t ip[16];
    uint32_t scope;
};

struct ddpi_address ddpi_address_of(const struct sockaddr *sockaddr);
uint16_t ddpi_address_port(const struct sockaddr *sockaddr);

bool ddpi_address_is_v4(const struct ddpi_address *address);
bool ddpi_address_equal(const struct ddpi_address *a, const struct ddpi_address *b);

/* Only processes of this machine can have it. */
bool ddpi_address_is_loopback(const struct ddpi_address *address);

enum { DDPI_ADDRESS_CHARS = INET6_ADDRSTRLEN };

/* "10.0.0.1", "fe80::1". */
void ddpi_address_format(const struct ddpi_address *address, char text[DDPI_ADDRESS_CHARS]);

#endif
