/*
 * etcd_address.h - where an etcd is, and which of its keys are the store's:
 * etcd://HOST[:PORT],HOST[:PORT].../PREFIX, or etcds:// for TLS; etcd://unix:SOCKET:/PREFIX is a
 * member of this machine, SOCKET being the absolute path of its socket. Pure.
 */
#ifndef DDPI_ETCD_ADDRESS_H
#define DDPI_ETCD_ADDRESS_H

#include "parse.h"

enum {
    DDPI_ETCD_PORT = 2379,
    DDPI_ETCD_ENDPOINTS_MAX = 9,
    DDPI_ETCD_PREFIX_MAX = 200,
    DDPI_ETCD_SOCKET_MAX = 107, /* what the kernel allows */
};

struct ddpi_etcd_address {
    bool tls;
    unsigned count;
    struct ddpi_endpoint at[DDPI_ETCD_ENDPOINTS_MAX]; /* all have a port */
    char socket[DDPI_ETCD_SOCKET_MAX + 1];            /* "": none; else the only endpoint is it */
    char prefix[DDPI_ETCD_PREFIX_MAX + 2];            /* "/PREFIX", without a '/' at its end */
};

/* Whether @text is meant to be one. */
bool ddpi_etcd_address_is(const char *text);

/* DDP_E_INVALID. A user's name is refused: command lines are visible to all users. */
ddp_status ddpi_etcd_address_parse(const char *text, struct ddpi_etcd_address *ret,
                                   struct ddp_error *err);

/* Where member number @member is, for sentences. */
enum { DDPI_ETCD_MEMBER_TEXT = DDPI_HOST_MAX + 16 };
void ddpi_etcd_member_text(const struct ddpi_etcd_address *address, unsigned member,
                           char ret[DDPI_ETCD_MEMBER_TEXT]);

#endif
