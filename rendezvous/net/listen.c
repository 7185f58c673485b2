/*
 * listen.c - listening sockets. Owns nothing after it returns; only resolving the name of a host
 * blocks.
 */
#include "listen.h"

#include "address.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BACKLOG = 4096, /* the kernel lowers it to net.core.somaxconn */
    HOST_TEXT = 64,
    ADDRESS_TEXT = HOST_TEXT + 16,
};

static void name_address(const struct sockaddr *address, socklen_t len, char *text, size_t size,
                         uint16_t *ret_port)
{
    char host[HOST_TEXT] = "?"; /* with the interface of a link-local address */
    bool is_v6 = address->sa_family == AF_INET6;
    (void)getnameinfo(address, len, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    *ret_port = ddpi_address_port(address);
    snprintf(text, size, is_v6 ? "[%s]:%u" : "%s:%u", host, *ret_port);
}

static ddp_status check_loopback(const struct sockaddr *address, socklen_t len,
                                 struct ddp_error *err)
{
    char text[ADDRESS_TEXT];
    uint16_t port;
    struct ddpi_address host = ddpi_address_of(address);
    if (ddpi_address_is_loopback(&host))
        return DDP_OK;
    name_address(address, len, text, sizeof text, &port);
    return ddpi_error_set(err, DDP_E_DENIED,
                          "%s is not a loopback address, and without a token clients are not "
                          "authenticated: anyone who can reach it could read and change every key",
                          text);
}

/* A listening socket, or -1 with errno. */
static int try_listen(const struct addrinfo *info)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static ddp_status explain_listen(int sys_errno, const char *host, uint16_t port,
                                 struct ddp_error *err)
{
    char where[ADDRESS_TEXT + 256];
    snprintf(where, sizeof where, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host, port);
    if (sys_errno == EADDRINUSE)
        return ddpi_error_sys(err, sys_errno,
                              "cannot listen on %s (does another job use it? end that, or choose "
                              "another port; port 0 selects a free one)",
                              where);
    if (sys_errno == EADDRNOTAVAIL)
        return ddpi_error_sys(err, sys_errno,
                              "cannot listen on %s (this machine has no such address)", where);
    return ddpi_error_sys(err, sys_errno, "cannot listen on %s", where);
}

ddp_status ddpi_listen(const char *host, uint16_t port, bool loopback_only, int *ret_fd,
                       struct ddp_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *infos;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int eai = getaddrinfo(host, service, &hints, &infos);
    if (eai != 0)
        return ddpi_error_set(err, DDP_E_UNREACHABLE, "cannot listen on '%s': %s", host,
                              gai_strerror(eai));
    ddp_status status = DDP_OK;
    int fd = -1, saved = 0;
    for (const struct addrinfo *info = infos; fd < 0 && info != NULL; info = info->ai_next) {
        if (loopback_only)
            status = check_loopback(info->ai_addr, info->ai_addrlen, err);
        if (status != DDP_OK)
            break;
        fd = try_listen(info);
        saved = errno;
    }
    freeaddrinfo(infos);
    if (status != DDP_OK)
        return status;
    if (fd < 0)
        return explain_listen(saved, host, port, err);
    *ret_fd = fd;
    return DDP_OK;
}

ddp_status ddpi_listen_check(int fd, bool loopback_only, struct ddp_error *err)
{
    int listens = 0;
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address, option_len = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &option_len) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return ddpi_error_sys(err, errno, "descriptor %d is not a socket that can be used", fd);
    if (!listens || (address.ss_family != AF_INET && address.ss_family != AF_INET6))
        return ddpi_error_set(err, DDP_E_INVALID, "descriptor %d is not a listening TCP socket",
                              fd);
    int flags = fcntl(fd, F_GETFL);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return ddpi_error_sys(err, errno, "cannot prepare descriptor %d", fd);
    return loopback_only ? check_loopback((struct sockaddr *)&address, len, err) : DDP_OK;
}

void ddpi_listen_name(int fd, char *text, size_t size, uint16_t *ret_port)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    socklen_t len = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &len);
    name_address((struct sockaddr *)&address, len, text, size, ret_port);
}
