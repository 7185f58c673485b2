/*
 * http_connections.c - see http_connections.h. Owns the structs, not the descriptors.
 */
#include "http_connections.h"

#include "mem.h"

#include <stddef.h>
#include <sys/socket.h>

void http_connections_init(struct http_connections *all, unsigned most, uint64_t limit_ms)
{
    *all = (struct http_connections){.most = most, .limit_ms = limit_ms};
    ddpi_list_init(&all->waiting);
}

struct http_connection *http_connections_add(struct http_connections *all, int fd, uint64_t now_ms)
{
    struct http_connection *one = ddpi_calloc(1, sizeof *one);
    if (one == NULL)
        return NULL;
    one->fd = fd;
    ddpi_list_init(&one->of_waiting);
    http_connection_await(all, one, now_ms);
    all->count++;
    return one;
}

void http_connections_remove(struct http_connections *all, struct http_connection *one)
{
    ddpi_list_remove(&one->of_waiting);
    all->count--;
    ddpi_free(one);
}

void http_connection_await(struct http_connections *all, struct http_connection *one,
                           uint64_t now_ms)
{
    one->since_ms = now_ms;
    ddpi_list_remove(&one->of_waiting);
    ddpi_list_append(&all->waiting, &one->of_waiting);
}

void http_connection_pause(struct http_connection *one)
{
    ddpi_list_remove(&one->of_waiting);
}

static struct http_connection *oldest_of(const struct http_connections *all)
{
    return ddpi_list_empty(&all->waiting)
               ? NULL
               : ddpi_container_of(all->waiting.next, struct http_connection, of_waiting);
}

static void shut(struct http_connection *one)
{
    ddpi_list_remove(&one->of_waiting);
    shutdown(one->fd, SHUT_RDWR);
}

bool http_connections_make_room(struct http_connections *all)
{
    struct http_connection *oldest = oldest_of(all);
    if (all->count < all->most || oldest == NULL)
        return false;
    shut(oldest);
    return true;
}

uint64_t http_connections_expire(struct http_connections *all, uint64_t now_ms)
{
    struct http_connection *oldest;
    while ((oldest = oldest_of(all)) != NULL) {
        uint64_t taken_ms = now_ms - oldest->since_ms;
        if (taken_ms < all->limit_ms)
            return all->limit_ms - taken_ms;
        shut(oldest);
    }
    return UINT64_MAX;
}
