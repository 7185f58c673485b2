/*
 * link.h - the blocking client's connection: dial, send, receive, each until a deadline. No libuv,
 * no globals, no signals.
 */
#ifndef DDPI_LINK_H
#define DDPI_LINK_H

#include "address.h"
#include "buf.h"

#include <ddprun/status.h>

struct ddpi_link {
    int fd; /* -1: not connected */
    struct ddpi_buf in;
    struct ddpi_buf out; /* what ddpi_link_send() sends */
};

/* Monotonic milliseconds. */
uint64_t ddpi_link_now(void);

void ddpi_link_init(struct ddpi_link *link);
void ddpi_link_close(struct ddpi_link *link);

/* Resolve @host and try each of its addresses once, sharing the time until @deadline_ms.
 * DDP_E_UNREACHABLE: the sentence names each of them and what it said. */
ddp_status ddpi_link_dial(struct ddpi_link *link, const char *host, uint16_t port,
                          uint64_t deadline_ms, struct ddp_error *err);

/* Who is at the other end; zeroed if nobody is any more. */
struct ddpi_address ddpi_link_peer(const struct ddpi_link *link);

/* Send all of @link->out. */
ddp_status ddpi_link_send(struct ddpi_link *link, uint64_t deadline_ms, struct ddp_error *err);

/* Receive until @link->in has @want bytes. */
ddp_status ddpi_link_receive(struct ddpi_link *link, size_t want, uint64_t deadline_ms,
                             struct ddp_error *err);

#endif
