/*
 * store_address.h - where a node of a job listens if it is to host the store: decided from the name
 * in the endpoint and from the addresses that this name has here. Pure: asks no resolver.
 */
#ifndef CMD_STORE_ADDRESS_H
#define CMD_STORE_ADDRESS_H

#include "parse.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <stdbool.h>

struct store_address {
    char host[DDPI_HOST_MAX]; /* the first that is this machine's, else the first; "": none */
    bool ours;                /* it is this machine's */
    bool is_loopback;         /* no other machine reaches it */
    bool is_own_name;         /* the name is this machine's: others know another address */
};

/* Whether @name is the name of the machine that calls itself @own_name: the same text in any case,
 * or one is the other with a domain behind it. Addresses and names of the loopback interface, such
 * as "localhost", are nobody's name. */
bool store_address_is_own_name(const char *name, const char *own_name);

/* Choose among @infos, the addresses of @name here (NULL: none). @interfaces are those of this
 * machine, as getifaddrs(3) lists them. */
struct store_address store_address_choose(const char *name, const char *own_name,
                                          const struct addrinfo *infos,
                                          const struct ifaddrs *interfaces);

#endif
