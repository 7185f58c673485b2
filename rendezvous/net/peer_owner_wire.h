/*
 * peer_owner_wire.h - the messages of the kernel's socket diagnosis (sock_diag(7)), and the lines
 * of /proc/net/tcp, about the owners of TCP sockets of this machine. Pure.
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

/* What is known of the socket with given ends. */
struct ddpi_owner_answer {
    bool found;     /* it exists, in some state */
    bool open;      /* a process has it open: the owner is valid */
    uint32_t owner; /* user id, as mapped in the caller's user namespace */
};

enum { DDPI_OWNER_REQUEST_MAX = 128 };

/* Write a request for the socket at @end whose peer is @other; returns its length. */
size_t ddpi_owner_request(const struct ddpi_end *end, const struct ddpi_end *other, uint32_t number,
                          uint8_t ret[DDPI_OWNER_REQUEST_MAX]);

/* Parse the answer to that request; false: @bytes are not an answer to it. An answer about another
 * socket, such as a listener on the same port, counts as not found. */
bool ddpi_owner_reply(const void *bytes, size_t len, const struct ddpi_end *end,
                      const struct ddpi_end *other, uint32_t number, struct ddpi_owner_answer *ret);

/* Write a request for all sockets that listen on @port, and with @bound for those that are only
 * bound to it, which kernels before Linux 6.8 do not report. */
size_t ddpi_port_request(uint16_t port, bool v6, bool bound, uint32_t number,
                         uint8_t ret[DDPI_OWNER_REQUEST_MAX]);

/* Parse the next message of the *@len bytes at *@bytes, and advance past it. */
enum ddpi_port_news {
    DDPI_PORT_SOCKET, /* an open socket: *ret_owner is its user id */
    DDPI_PORT_OTHER,  /* not relevant */
    DDPI_PORT_MORE,   /* no message is left; read more */
    DDPI_PORT_END,
    DDPI_PORT_ERROR, /* the kernel reports an error */
};
enum ddpi_port_news ddpi_port_next(const uint8_t **bytes, size_t *len, uint16_t port,
                                   uint32_t number, uint32_t *ret_owner);

enum { DDPI_OWNER_ENDS = 96 };

/* The text of both ends in the line of a socket that listens on @port. */
void ddpi_port_line_ends(uint16_t port, bool v6, char ret[DDPI_OWNER_ENDS]);

/* The text of both ends in the line of a connected socket, in the table of IPv4 or IPv6. */
void ddpi_owner_line_ends(const struct ddpi_end *end, const struct ddpi_end *other, bool v6,
                          char ret[DDPI_OWNER_ENDS]);

/* Whether @line is about the socket with these ends; parses it then. */
bool ddpi_owner_line(const char *line, const char *ends, struct ddpi_owner_answer *ret);

#endif
