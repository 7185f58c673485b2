/*
 * http_connections.h - which connections an HTTP server has, and since when each of their clients
 * has taken time: since it was accepted, since its last answer had left, or since the owner gave an
 * answer. Whatever trickles in or out meanwhile does not count. Who takes too long is shut down,
 * and so is the one that has taken longest when a newcomer finds no place. Knows no HTTP.
 *
 * A connection that is shut down stays in the count until its owner removes it.
 */
#ifndef CMD_HTTP_CONNECTIONS_H
#define CMD_HTTP_CONNECTIONS_H

#include "list.h"

#include <stdbool.h>
#include <stdint.h>

struct http_connection {
    struct ddpi_list of_waiting; /* in none while the owner has its request, or when shut down */
    uint64_t since_ms;
    int fd; /* borrowed */
};

struct http_connections {
    struct ddpi_list waiting; /* the one that has taken longest comes first */
    unsigned count, most;
    uint64_t limit_ms;
};

void http_connections_init(struct http_connections *all, unsigned most, uint64_t limit_ms);

/* A new one, whose client takes time from @now_ms on; NULL: no memory. */
struct http_connection *http_connections_add(struct http_connections *all, int fd, uint64_t now_ms);
void http_connections_remove(struct http_connections *all, struct http_connection *one);

/* From now on its client takes time again, or the owner does. */
void http_connection_await(struct http_connections *all, struct http_connection *one,
                           uint64_t now_ms);
void http_connection_pause(struct http_connection *one);

/* Shut down the one that has taken longest, if there is no place for another one; true: done. */
bool http_connections_make_room(struct http_connections *all);

/* Shut down those that have taken too long. Returns the time until the next one will have;
 * UINT64_MAX: there is none. */
uint64_t http_connections_expire(struct http_connections *all, uint64_t now_ms);

#endif
