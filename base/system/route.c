/*
 * route.c - see route.h. Owns nothing.
 */
#include "route.h"

#include "error.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns 0, or the errno if there is no route. */
static int route_to(const struct addrinfo *target, struct sockaddr_storage *ret)
{
    int fd = socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    socklen_t len = sizeof *ret;
    bool found = connect(fd, target->ai_addr, target->ai_addrlen) == 0 &&
                 getsockname(fd, (struct sockaddr *)ret, &len) == 0;
    int error = found ? 0 : errno;
    close(fd);
    return error;
}

/* The first address of @host to which there is a route, and where that begins. */
static ddp_status find_route(const char *host, uint16_t port, struct sockaddr_storage *ret_target,
                             struct sockaddr_storage *ret_source, struct ddp_error *err)
{
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, service, &hints, &found);
    if (error == EAI_SYSTEM)
        return ddpi_error_sys(err, errno, "resolve '%s'", host);
    if (error != 0)
        return ddpi_error_set(err, DDP_E_UNREACHABLE, "resolve '%s': %s", host,
                              gai_strerror(error));
    error = ENETUNREACH;
    for (const struct addrinfo *at = found; at != NULL && error != 0; at = at->ai_next)
        if (at->ai_family == AF_INET || at->ai_family == AF_INET6) {
            memcpy(ret_target, at->ai_addr, at->ai_addrlen);
            error = route_to(at, ret_source);
        }
    freeaddrinfo(found);
    return error == 0 ? DDP_OK : ddpi_error_sys(err, error, "find a route to '%s'", host);
}

ddp_status ddpi_source_address(const char *host, uint16_t port, struct sockaddr_storage *ret,
                               struct ddp_error *err)
{
    struct sockaddr_storage target;
    return find_route(host, port, &target, ret, err);
}

ddp_status ddpi_target_address(const char *host, uint16_t port, struct sockaddr_storage *ret,
                               struct ddp_error *err)
{
    struct sockaddr_storage source;
    *ret = (struct sockaddr_storage){0};
    return find_route(host, port, ret, &source, err);
}
