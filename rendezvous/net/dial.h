/*
 * dial.h - the blocking client's connection: a non-blocking socket that the caller polls. Only
 * resolving a name can block. No libuv, no globals, no signals. Also what both clients set on their
 * sockets.
 */
#ifndef DDPI_DIAL_H
#define DDPI_DIAL_H

#include "address.h"

#include <ddprun/status.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDPI_LINK_SILENCE_MS = 10000 };

struct ddpi_link {
    int fd;                 /* -1: not connected */
    bool dialling;          /* not connected yet: poll it for output, until until_ms */
    uint64_t until_ms;      /* for this address */
    uint64_t deadline_ms;   /* for all of them */
    struct addrinfo *infos; /* while dialling */
    struct addrinfo *next;  /* to be tried after this one */
    char tried[DDP_ERROR_TEXT / 2];
};

void ddpi_link_init(struct ddpi_link *link);
void ddpi_link_close(struct ddpi_link *link);

/* The addresses of @host, for ddpi_link_dial(). Blocks while the system's resolver does. */
ddp_status ddpi_link_resolve(const char *host, uint16_t port, struct addrinfo **ret,
                             struct ddp_error *err);

/* Begin to dial each of @infos, which is taken over; they share the time until @deadline_ms. On
 * DDP_OK the link is connected or `dialling`. DDP_E_UNREACHABLE: the sentence names each address
 * and its error. */
ddp_status ddpi_link_dial(struct ddpi_link *link, struct addrinfo *infos, uint64_t now_ms,
                          uint64_t deadline_ms, struct ddp_error *err);
/* Continue when the socket is @ready for output, or its time has run out. The same results. */
ddp_status ddpi_link_go_on(struct ddpi_link *link, bool ready, uint64_t now_ms,
                           struct ddp_error *err);

/*
 * Let the kernel end @fd, connected by either client, when the server's machine has been silent for
 * DDPI_LINK_SILENCE_MS: by probes while the client waits, and by TCP_USER_TIMEOUT while something
 * is under way. The kernel of a server that is stopped for a moment acknowledges both, so the
 * connection stays. But where megabytes have filled its buffers, TCP_USER_TIMEOUT also counts the
 * time in which there is no room for more (tcp(7)).
 */
void ddpi_link_tune(int fd);

/* The address of the peer; zero if it has disconnected. */
struct ddpi_address ddpi_link_peer(const struct ddpi_link *link);

/* Send as many of @len bytes as possible without waiting: *@ret_len, possibly 0. */
ddp_status ddpi_link_send(struct ddpi_link *link, const void *bytes, size_t len, size_t *ret_len,
                          struct ddp_error *err);
/* Receive what has arrived, at most @size bytes: *@ret_len, or 0. DDP_E_CLOSED: end of file. */
ddp_status ddpi_link_receive(struct ddpi_link *link, void *bytes, size_t size, size_t *ret_len,
                             struct ddp_error *err);

#endif
