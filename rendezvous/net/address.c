/*
 * address.c - addresses of hosts. Owns nothing.
 */
#include "address.h"

#include <arpa/inet.h>
#include <string.h>

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool ddpi_address_is_v4(const struct ddpi_address *address)
{
    return memcmp(address->ip, v4_prefix, sizeof v4_prefix) == 0;
}

struct ddpi_address ddpi_address_of(const struct sockaddr *sockaddr)
{
    struct ddpi_address address = {0};
    const struct sockaddr_in *v4 = (const void *)sockaddr;
    const struct sockaddr_in6 *v6 = (const void *)sockaddr;
    if (sockaddr->sa_family == AF_INET) {
        memcpy(address.ip, v4_prefix, sizeof v4_prefix);
        memcpy(address.ip + sizeof v4_prefix, &v4->sin_addr, sizeof v4->sin_addr);
    } else if (sockaddr->sa_family == AF_INET6) {
        memcpy(address.ip, &v6->sin6_addr, sizeof address.ip);
        address.scope = v6->sin6_scope_id;
    }
    return address;
}

uint16_t ddpi_address_port(const struct sockaddr *sockaddr)
{
    const struct sockaddr_in *v4 = (const void *)sockaddr;
    const struct sockaddr_in6 *v6 = (const void *)sockaddr;
    return ntohs(sockaddr->sa_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

bool ddpi_address_equal(const struct ddpi_address *a, const struct ddpi_address *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool ddpi_address_is_loopback(const struct ddpi_address *address)
{
    struct in6_addr v6;
    memcpy(&v6, address->ip, sizeof v6);
    return ddpi_address_is_v4(address) ? address->ip[sizeof v4_prefix] == IN_LOOPBACKNET
                                       : IN6_IS_ADDR_LOOPBACK(&v6);
}

void ddpi_address_format(const struct ddpi_address *address, char text[DDPI_ADDRESS_CHARS])
{
    const void *bytes = ddpi_address_is_v4(address) ? address->ip + sizeof v4_prefix : address->ip;
    inet_ntop(ddpi_address_is_v4(address) ? AF_INET : AF_INET6, bytes, text, DDPI_ADDRESS_CHARS);
}
