/*
 * listen.c - the listening socket. Owns nothing once it has returned; blocks only if @host is a
 * name that the resolver has to ask others for.
 */
#include "listen.h"

#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 }; /* the kernel lowers it to net.core.somaxconn */

static void name_address(const struct sockaddr_storage *address, char *text, size_t size,
                         uint16_t *ret_port)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        *ret_port = ntohs(v6->sin6_port);
        snprintf(text, size, "[%s]:%u", host, *ret_port);
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        *ret_port = ntohs(v4->sin_port);
        snprintf(text, size, "%s:%u", host, *ret_port);
    }
}

/* A listening socket, or -1 with errno. */
static int try_listen(const struct addrinfo *info)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static ddp_status explain(int sys_errno, const char *host, uint16_t port, struct ddp_error *err)
{
    if (sys_errno == EADDRINUSE)
        return ddpi_error_sys(err, sys_errno,
                              "cannot listen on %s:%u (does another job use it? end that, or "
                              "choose another port; port 0 takes a free one)",
                              host, port);
    if (sys_errno == EADDRNOTAVAIL)
        return ddpi_error_sys(err, sys_errno,
                              "cannot listen on %s:%u (this machine has no such address)", host,
                              port);
    return ddpi_error_sys(err, sys_errno, "cannot listen on %s:%u", host, port);
}

ddp_status ddpi_listen(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port,
                       char *ret_text, size_t text_size, struct ddp_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *infos;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int eai = getaddrinfo(host, service, &hints, &infos);
    if (eai != 0)
        return ddpi_error_set(err, DDP_E_UNREACHABLE, "cannot listen on '%s': %s", host,
                              gai_strerror(eai));
    int fd = -1;
    for (const struct addrinfo *info = infos; fd < 0 && info != NULL; info = info->ai_next)
        fd = try_listen(info);
    int saved = errno;
    freeaddrinfo(infos);
    if (fd < 0)
        return explain(saved, host, port, err);
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &len);
    name_address(&address, ret_text, text_size, ret_port);
    *ret_fd = fd;
    return DDP_OK;
}
