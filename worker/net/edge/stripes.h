/*
 * stripes.h - how an edge divides its bytes among several sockets: stripes of one size go over them
 * in turn, so that no header is needed, and both sides know from the number of a byte alone where
 * it is. Pure.
 */
#ifndef DDPI_STRIPES_H
#define DDPI_STRIPES_H

#include <stddef.h>
#include <stdint.h>

enum {
    DDPI_SOCKETS_MAX = 8,          /* of one edge, for data */
    DDPI_STRIPE_SIZE = 128 * 1024, /* a system call moves as much, and a socket's buffer has room
                                      for several: while one drains, the others are filled */
};

/* The socket that byte number @at goes over. */
static inline unsigned ddpi_stripe_socket(uint64_t at, unsigned sockets)
{
    return (unsigned)(at / DDPI_STRIPE_SIZE % sockets);
}

/* How many of the @len bytes from number @at on go over the same socket without a gap. */
static inline size_t ddpi_stripe_part(uint64_t at, size_t len, unsigned sockets)
{
    size_t left = DDPI_STRIPE_SIZE - (size_t)(at % DDPI_STRIPE_SIZE);
    return sockets == 1 || len < left ? len : left;
}

#endif
