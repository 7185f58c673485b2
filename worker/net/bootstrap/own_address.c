/*
 * own_address.c - see own_address.h. Owns nothing.
 */
#include "own_address.h"

#include "error.h"
#include "route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_TEXT = 512 };

bool ddpi_interface_is_meant(const char *list, const char *name)
{
    bool others = *list == '^';
    list += others;
    bool exact = *list == '=';
    list += exact;
    const char *item;
    size_t len;
    bool listed = false;
    while (!listed && ddpi_parse_list_next(&list, ',', &item, &len))
        listed = len > 0 && strncmp(name, item, len) == 0 && (!exact || name[len] == '\0');
    return listed != others;
}

static bool is_usable(const struct ifaddrs *at, int family)
{
    if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 || at->ifa_addr->sa_family != family)
        return false;
    return family != AF_INET6 ||
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr);
}

bool ddpi_interface_address(const struct ifaddrs *addresses, const char *list,
                            struct sockaddr_storage *ret)
{
    static const int families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (const struct ifaddrs *at = addresses; at != NULL; at = at->ifa_next)
            if (is_usable(at, families[i]) && ddpi_interface_is_meant(list, at->ifa_name)) {
                *ret = (struct sockaddr_storage){0};
                memcpy(ret, at->ifa_addr,
                       families[i] == AF_INET ? sizeof(struct sockaddr_in)
                                              : sizeof(struct sockaddr_in6));
                return true;
            }
    return false;
}

/* "lo eth0": each once. */
static void list_interfaces(const struct ifaddrs *addresses, char text[NAMES_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct ifaddrs *at = addresses; at != NULL; at = at->ifa_next) {
        size_t len = strlen(at->ifa_name);
        if ((!is_usable(at, AF_INET) && !is_usable(at, AF_INET6)) || used + len + 2 > NAMES_TEXT ||
            strstr(text, at->ifa_name) != NULL)
            continue;
        used += (size_t)snprintf(text + used, NAMES_TEXT - used, "%s%s", used > 0 ? " " : "",
                                 at->ifa_name);
    }
}

static ddp_status address_by_name(const struct ifaddrs *addresses, const char *interfaces,
                                  struct sockaddr_storage *ret, struct ddp_error *err)
{
    char names[NAMES_TEXT];
    if (ddpi_interface_address(addresses, interfaces, ret))
        return DDP_OK;
    list_interfaces(addresses, names);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "DDP_SOCKET_IFNAME: '%s' means no interface that is up and has an "
                          "address; there are: %s",
                          interfaces, names);
}

void ddpi_address_endpoint(const struct sockaddr_storage *address, struct ddpi_endpoint *ret)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    bool is_v4 = address->ss_family == AF_INET;
    *ret = (struct ddpi_endpoint){.has_port = true};
    ret->port = ntohs(is_v4 ? v4->sin_port : v6->sin6_port);
    (void)inet_ntop(address->ss_family, is_v4 ? (const void *)&v4->sin_addr : &v6->sin6_addr,
                    ret->host, sizeof ret->host);
}

/* Addresses of documentation: only a default route leads there, and nothing is sent. */
static bool address_to_the_world(const struct ifaddrs *addresses, struct sockaddr_storage *ret)
{
    return ddpi_source_address(DDPI_THE_WORLD, 1, ret, NULL) == DDP_OK ||
           ddpi_interface_address(addresses, "^lo,docker,veth,br-,virbr", ret) ||
           ddpi_source_address("2001:db8::1", 1, ret, NULL) == DDP_OK ||
           ddpi_source_address("127.0.0.1", 1, ret, NULL) == DDP_OK;
}

static ddp_status choose_address(const char *interfaces, const char *host, uint16_t port,
                                 struct sockaddr_storage *ret, struct ddp_error *err)
{
    bool named = interfaces != NULL && *interfaces != '\0';
    if (!named && *host != '\0')
        return ddpi_source_address(host, port, ret, err);
    struct ifaddrs *addresses;
    if (getifaddrs(&addresses) != 0)
        return ddpi_error_sys(err, errno, "list the network interfaces");
    ddp_status status = named ? address_by_name(addresses, interfaces, ret, err)
                        : address_to_the_world(addresses, ret)
                            ? DDP_OK
                            : ddpi_error_set(err, DDP_E_SYSTEM, "this machine has no address");
    freeifaddrs(addresses);
    return status;
}

ddp_status ddpi_own_address(const char *interfaces, const char *host, uint16_t port,
                            struct sockaddr_storage *ret, struct ddp_error *err)
{
    ddp_status status = choose_address(interfaces, host, port, ret, err);
    if (status == DDP_OK && ret->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)ret)->sin_port = 0;
    else if (status == DDP_OK)
        ((struct sockaddr_in6 *)(void *)ret)->sin6_port = 0;
    return status;
}
