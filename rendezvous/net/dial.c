/*
 * dial.c - a non-blocking client socket. Owns the socket and, while it dials, the list of
 * addresses; does not know the protocol.
 */
#include "dial.h"

#include "clock.h"
#include "error.h"
#include "tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DIAL_MAX_MS = 3000, /* for one address if there are others to try */
    ADDRESS_TEXT = INET6_ADDRSTRLEN + 8,
};

void ddpi_link_init(struct ddpi_link *link)
{
    *link = (struct ddpi_link){.fd = -1};
}

static void forget_addresses(struct ddpi_link *link)
{
    if (link->infos != NULL)
        freeaddrinfo(link->infos);
    link->infos = link->next = NULL;
    link->dialling = false;
}

static void close_socket(struct ddpi_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

void ddpi_link_close(struct ddpi_link *link)
{
    close_socket(link);
    forget_addresses(link);
}

ddp_status ddpi_link_resolve(const char *host, uint16_t port, struct addrinfo **ret,
                             struct ddp_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int eai = getaddrinfo(host, service, &hints, ret);
    if (eai == EAI_MEMORY)
        return ddpi_error_set(err, DDP_E_NOMEM, "out of memory while resolving '%s'", host);
    if (eai != 0)
        return ddpi_error_set(err, DDP_E_UNREACHABLE, "cannot resolve '%s': %s", host,
                              gai_strerror(eai));
    return DDP_OK;
}

/* ---- dialling ---- */

/* Dialling a port of this machine without a listener can select the same port as the local one, so
 * that the socket connects to itself, and keeps the server from its port. */
static bool reached_itself(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_len = sizeof here, there_len = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

/* Append "10.0.0.1: Connection refused" to the error text. */
static void note_attempt(struct ddpi_link *link, const struct addrinfo *info, int sys_errno)
{
    char host[ADDRESS_TEXT] = "?", text[DDP_ERROR_TEXT / 2];
    getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    size_t used = strlen(link->tried);
    ddpi_errno_describe(sys_errno, text, sizeof text);
    snprintf(link->tried + used, sizeof link->tried - used, "%s%s: %s", used > 0 ? "; " : "", host,
             text);
}

/* 0: connected; EINPROGRESS; or the errno of the failure. */
static int begin_connect(struct ddpi_link *link, const struct addrinfo *info)
{
    link->fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0)
        return errno;
    return connect(link->fd, info->ai_addr, info->ai_addrlen) == 0 ? 0 : errno;
}

static int finish_connect(const struct ddpi_link *link, bool ready, uint64_t now_ms)
{
    int sys_errno = 0;
    socklen_t len = sizeof sys_errno;
    if (!ready)
        return now_ms >= link->until_ms ? ETIMEDOUT : EINPROGRESS;
    return getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &sys_errno, &len) == 0 ? sys_errno : errno;
}

void ddpi_link_tune(int fd)
{
    const unsigned silence_ms = DDPI_LINK_SILENCE_MS;
    ddpi_tune_tcp(fd);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
}

static void dial_connected(struct ddpi_link *link)
{
    ddpi_link_tune(link->fd);
    forget_addresses(link);
}

static uint64_t dial_share(const struct ddpi_link *link, uint64_t now_ms)
{
    if (link->next == NULL)
        return link->deadline_ms;
    uint64_t half = (uint64_t)ddpi_remaining_ms(now_ms, link->deadline_ms) / 2;
    return now_ms + (half < DIAL_MAX_MS ? half : DIAL_MAX_MS);
}

/* Handle the result of dialling @info: connected, in progress, or failed; then dial others. */
static ddp_status dial_next(struct ddpi_link *link, const struct addrinfo *info, int sys_errno,
                            uint64_t now_ms, struct ddp_error *err)
{
    for (;;) {
        if (sys_errno == EINPROGRESS)
            return DDP_OK;
        if (sys_errno == 0 && reached_itself(link->fd))
            sys_errno = ECONNREFUSED;
        if (sys_errno == 0) {
            dial_connected(link);
            return DDP_OK;
        }
        note_attempt(link, info, sys_errno);
        close_socket(link);
        info = link->next;
        if (info == NULL)
            break;
        link->next = info->ai_next;
        link->until_ms = dial_share(link, now_ms);
        sys_errno = begin_connect(link, info);
    }
    forget_addresses(link);
    ddpi_error_set(err, DDP_E_UNREACHABLE, "%s", link->tried);
    err->sys_errno = sys_errno;
    return DDP_E_UNREACHABLE;
}

ddp_status ddpi_link_dial(struct ddpi_link *link, struct addrinfo *infos, uint64_t now_ms,
                          uint64_t deadline_ms, struct ddp_error *err)
{
    link->infos = infos;
    link->next = infos->ai_next;
    link->deadline_ms = deadline_ms;
    link->until_ms = dial_share(link, now_ms);
    link->dialling = true;
    link->tried[0] = '\0';
    return dial_next(link, infos, begin_connect(link, infos), now_ms, err);
}

struct ddpi_address ddpi_link_peer(const struct ddpi_link *link)
{
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof name;
    if (getpeername(link->fd, (struct sockaddr *)&name, &len) != 0)
        return (struct ddpi_address){0};
    return ddpi_address_of((const struct sockaddr *)&name);
}

ddp_status ddpi_link_go_on(struct ddpi_link *link, bool ready, uint64_t now_ms,
                           struct ddp_error *err)
{
    const struct addrinfo *info = link->infos;
    while (info->ai_next != link->next)
        info = info->ai_next;
    return dial_next(link, info, finish_connect(link, ready, now_ms), now_ms, err);
}

/* ---- bytes ---- */

ddp_status ddpi_link_send(struct ddpi_link *link, const void *bytes, size_t len, size_t *ret_len,
                          struct ddp_error *err)
{
    ssize_t sent = send(link->fd, bytes, len, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return ddpi_error_sys(err, errno, "sending");
    *ret_len = sent > 0 ? (size_t)sent : 0;
    return DDP_OK;
}

ddp_status ddpi_link_receive(struct ddpi_link *link, void *bytes, size_t size, size_t *ret_len,
                             struct ddp_error *err)
{
    ssize_t got = recv(link->fd, bytes, size, 0);
    if (got == 0)
        return ddpi_error_set(err, DDP_E_CLOSED, "the server closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        return ddpi_error_sys(err, errno, "receiving");
    *ret_len = got > 0 ? (size_t)got : 0;
    return DDP_OK;
}
