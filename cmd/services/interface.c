/*
 * interface.c - see interface.h. Keeps nothing.
 */
#include "interface.h"

#include "address.h"
#include "route.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>

static const char loopback[] = "lo";

/* Write the name of the interface with @address; "": none has it. */
static void interface_of(const struct sockaddr *address, char name[IF_NAMESIZE])
{
    struct ifaddrs *interfaces;
    struct ddpi_address wanted = ddpi_address_of(address);
    name[0] = '\0';
    if (ddpi_address_is_loopback(&wanted)) /* of which 127.0.0.1 alone is listed */
        snprintf(name, IF_NAMESIZE, "%s", loopback);
    if (name[0] != '\0' || getifaddrs(&interfaces) != 0)
        return;
    for (const struct ifaddrs *at = interfaces; at != NULL && name[0] == '\0'; at = at->ifa_next) {
        int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;
        if (family != AF_INET && family != AF_INET6)
            continue;
        struct ddpi_address its = ddpi_address_of(at->ifa_addr);
        if (ddpi_address_equal(&wanted, &its))
            snprintf(name, IF_NAMESIZE, "%s", at->ifa_name);
    }
    freeifaddrs(interfaces);
}

void interface_of_socket(int socket, char name[IF_NAMESIZE])
{
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    name[0] = '\0';
    if (getsockname(socket, (struct sockaddr *)&own, &len) == 0)
        interface_of((const struct sockaddr *)&own, name);
}

void interface_of_text(const char *address, char name[IF_NAMESIZE])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    name[0] = '\0';
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        interface_of((const struct sockaddr *)&v4, name);
    else if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1)
        interface_of((const struct sockaddr *)&v6, name);
}

void interface_to_the_world(char name[IF_NAMESIZE])
{
    struct sockaddr_storage own;
    name[0] = '\0';
    if (ddpi_source_address(DDPI_THE_WORLD, 9, &own, NULL) == DDP_OK)
        interface_of((const struct sockaddr *)&own, name);
}
