/*
 * peer_owner_wire.h - what is asked of the kernel about the owner of a TCP socket of this machine,
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

enum { DDPI_OWNER_ENDS = 96 };

/* What a line about that socket has in it: in the table of IPv4, or of IPv6. */
void ddpi_owner_line_ends(const struct ddpi_end *end, const struct ddpi_end *other, bool v6,
                          char ret[DDPI_OWNER_ENDS]);

/* Whether @line, a string, is about the socket of these ends, and then what it says of it. */
bool ddpi_owner_line(const char *line, const char *ends, struct ddpi_owner_answer *ret);

#endif
