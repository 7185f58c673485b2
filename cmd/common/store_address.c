/*
 * store_address.c - see store_address.h. Keeps nothing.
 */
#include "store_address.h"

#include "address.h"

#include <string.h>
#include <strings.h>

/* ---- names ---- */

/* As "localhost", "localhost.localdomain" and "run7.localhost". */
static bool is_loopback_name(const char *name)
{
    static const char localhost[] = "localhost";
    const char *last = strrchr(name, '.');
    size_t first_len = strcspn(name, ".");
    bool first = first_len == strlen(localhost) && strncasecmp(name, localhost, first_len) == 0;
    return first || (last != NULL && strcasecmp(last + 1, localhost) == 0) ||
           strcasecmp(name, "ip6-localhost") == 0 || strcasecmp(name, "ip6-loopback") == 0;
}

/* @longer is @name, or @name with a domain. */
static bool has_name(const char *longer, const char *name)
{
    size_t len = strlen(name);
    return len > 0 && strncasecmp(longer, name, len) == 0 &&
           (longer[len] == '\0' || longer[len] == '.');
}

bool store_address_is_own_name(const char *name, const char *own_name)
{
    if (ddpi_host_is_address(name) || is_loopback_name(name))
        return false;
    return has_name(name, own_name) || has_name(own_name, name);
}

/* ---- addresses ---- */

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (b == NULL || a->sa_family != b->sa_family)
        return false;
    struct ddpi_address one = ddpi_address_of(a), other = ddpi_address_of(b);
    return memcmp(one.ip, other.ip, sizeof one.ip) == 0;
}

static bool is_loopback(const struct sockaddr *sockaddr)
{
    struct ddpi_address address = ddpi_address_of(sockaddr);
    return ddpi_address_is_loopback(&address);
}

/* All of 127.0.0.0/8 is, of which the interfaces list one address. */
static bool is_ours(const struct sockaddr *address, const struct ifaddrs *interfaces)
{
    bool found = is_loopback(address);
    for (const struct ifaddrs *at = interfaces; at != NULL && !found; at = at->ifa_next)
        found = same_host(address, at->ifa_addr);
    return found;
}

struct store_address store_address_choose(const char *name, const char *own_name,
                                          const struct addrinfo *infos,
                                          const struct ifaddrs *interfaces)
{
    struct store_address address = {.host = ""};
    const struct addrinfo *chosen = infos;
    for (const struct addrinfo *at = infos; at != NULL && !address.ours; at = at->ai_next) {
        address.ours = is_ours(at->ai_addr, interfaces);
        chosen = address.ours ? at : chosen;
    }
    address.is_own_name = store_address_is_own_name(name, own_name);
    address.is_loopback = chosen != NULL && is_loopback(chosen->ai_addr);
    if (chosen == NULL || getnameinfo(chosen->ai_addr, chosen->ai_addrlen, address.host,
                                      sizeof address.host, NULL, 0, NI_NUMERICHOST) != 0)
        return (struct store_address){.is_own_name = address.is_own_name};
    return address;
}
