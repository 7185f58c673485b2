/*
 * peer_owner_wire.h - what is asked of the kernel about the owners of TCP sockets of this machine,
 * and what it says: the messages of its socket diagnosis (sock_diag(7)), and the lines of
 * /proc/net/tcp. Pure.
 */
#ifndef DDPI_PEER_OWNER_WIRE_H
#define DDPI_PEER_OWNER_WIRE_H

#include "address.h"

#include <stddef.h>

/* One end of a connection. */
struct ddpi_end {
    struct ddpi_address address;
    uint16_t port;
};

struct ddpi_end ddpi_end_of(const struct sockaddr *sockaddr);

/* What is known of the socket that is connected from one end to another. */
struct ddpi_owner_answer {
    bool found;     /* there is one, in some state */
    bool open;      /* and a process has it: the owner means something */
    uint32_t owner; /* user id, as the asker's user namespace knows it */
};

enum { DDPI_OWNER_REQUEST_MAX = 128 };

/* Ask for the socket at @end whose peer is @other; the number of bytes. */
size_t ddpi_owner_request(const struct ddpi_end *end, const struct ddpi_end *other, uint32_t number,
                          uint8_t ret[DDPI_OWNER_REQUEST_MAX]);

/* The answer to the request of that number, about these ends; false: @bytes are none. An answer
 * about another socket, such as a listener on the same port, is one that has found nothing. */
bool ddpi_owner_reply(const void *bytes, size_t len, const struct ddpi_end *end,
                      const struct ddpi_end *other, uint32_t number, struct ddpi_owner_answer *ret);

/* Ask for all sockets that listen on @port, and if @bound for those, too, that are bound to it and
 * do nothing yet, of which kernels before Linux 6.8 do not tell. */
size_t ddpi_port_request(uint16_t port, bool v6, bool bound, uint32_t number,
                         uint8_t ret[DDPI_OWNER_REQUEST_MAX]);

/* The next message of the *@len bytes at *@bytes, which move behind it. */
enum ddpi_port_news {
    DDPI_PORT_SOCKET, /* one of them, which a process has: *ret_owner is its user */
    DDPI_PORT_OTHER,  /* of no interest */
    DDPI_PORT_MORE,   /* no message is left, and more come */
    DDPI_PORT_END,
    DDPI_PORT_ERROR, /* the kernel does not say */
};
enum ddpi_port_news ddpi_port_next(const uint8_t **bytes, size_t *len, uint16_t port,
                                   uint32_t number, uint32_t *ret_owner);

enum { DDPI_OWNER_ENDS = 96 };

/* What a line about a socket that listens on @port has in it, in place of both ends. */
void ddpi_port_line_ends(uint16_t port, bool v6, char ret[DDPI_OWNER_ENDS]);

/* What a line about that socket has in it: in the table of IPv4, or of IPv6. */
void ddpi_owner_line_ends(const struct ddpi_end *end, const struct ddpi_end *other, bool v6,
                          char ret[DDPI_OWNER_ENDS]);

/* Whether @line, a string, is about the socket of these ends, and then what it says of it. */
bool ddpi_owner_line(const char *line, const char *ends, struct ddpi_owner_answer *ret);

#endif
