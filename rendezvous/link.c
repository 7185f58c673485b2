/*
 * link.c - a non-blocking socket and poll(2). Owns the socket and two buffers; knows nothing of
 * what it carries.
 */
#include "link.h"

#include "clock.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_MAX = 64 * 1024 * 1024, /* a last bound; proto.h has the limits of frames */
    DIAL_MAX_MS = 3000,            /* for one address while there are others to try */
    ADDRESS_TEXT = INET6_ADDRSTRLEN + 8,
};

uint64_t ddpi_link_now(void)
{
    return ddpi_now_ms(&ddpi_clock_monotonic);
}

void ddpi_link_init(struct ddpi_link *link)
{
    link->fd = -1;
    ddpi_buf_init(&link->in, BUFFER_MAX);
    ddpi_buf_init(&link->out, BUFFER_MAX);
}

void ddpi_link_close(struct ddpi_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    ddpi_buf_finish(&link->in);
    ddpi_buf_finish(&link->out);
}

/* 0, ETIMEDOUT, or what poll said. */
static int wait_for(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    for (;;) {
        int ready = poll(&poll_fd, 1, ddpi_remaining_ms(ddpi_link_now(), deadline_ms));
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return errno;
        if (ddpi_link_now() >= deadline_ms)
            return ETIMEDOUT;
    }
}

/* On one machine, dialling a port on which nobody listens may pick that very port as its own and
 * so reach itself: it would answer to nobody and keep the server from its port. */
static bool reached_itself(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_len = sizeof here, there_len = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

static int finish_connect(int fd, uint64_t deadline_ms)
{
    int sys_errno = wait_for(fd, POLLOUT, deadline_ms);
    socklen_t len = sizeof sys_errno;
    if (sys_errno == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys_errno, &len) != 0)
        sys_errno = errno;
    return sys_errno;
}

/* 0 and *@ret_fd, or an errno. */
static int dial_address(const struct addrinfo *info, uint64_t deadline_ms, int *ret_fd)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int sys_errno = connect(fd, info->ai_addr, info->ai_addrlen) == 0 ? 0 : errno;
    if (sys_errno == EINPROGRESS)
        sys_errno = finish_connect(fd, deadline_ms);
    if (sys_errno == 0 && reached_itself(fd))
        sys_errno = ECONNREFUSED;
    if (sys_errno != 0) {
        close(fd);
        return sys_errno;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    *ret_fd = fd;
    return 0;
}

/* Add "10.0.0.1: Connection refused" to the sentence. */
static void note_attempt(char *tried, size_t size, const struct addrinfo *info, int sys_errno)
{
    char host[ADDRESS_TEXT] = "?";
    getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    size_t used = strlen(tried);
    const char *text = strerrordesc_np(sys_errno);
    snprintf(tried + used, size - used, "%s%s: %s", used > 0 ? "; " : "", host,
             text != NULL ? text : "unknown error");
}

static uint64_t share_of(uint64_t deadline_ms, const struct addrinfo *info)
{
    if (info->ai_next == NULL)
        return deadline_ms;
    uint64_t now_ms = ddpi_link_now();
    uint64_t half = (uint64_t)ddpi_remaining_ms(now_ms, deadline_ms) / 2;
    return now_ms + (half < DIAL_MAX_MS ? half : DIAL_MAX_MS);
}

ddp_status ddpi_link_dial(struct ddpi_link *link, const char *host, uint16_t port,
                          uint64_t deadline_ms, struct ddp_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *infos;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int eai = getaddrinfo(host, service, &hints, &infos);
    if (eai == EAI_MEMORY)
        return ddpi_error_set(err, DDP_E_NOMEM, "out of memory while resolving '%s'", host);
    if (eai != 0)
        return ddpi_error_set(err, DDP_E_UNREACHABLE, "cannot resolve '%s': %s", host,
                              gai_strerror(eai));
    char tried[DDP_ERROR_TEXT / 2] = "";
    for (const struct addrinfo *info = infos; link->fd < 0 && info != NULL; info = info->ai_next) {
        int sys_errno = dial_address(info, share_of(deadline_ms, info), &link->fd);
        if (sys_errno != 0)
            note_attempt(tried, sizeof tried, info, sys_errno);
    }
    freeaddrinfo(infos);
    return link->fd >= 0 ? DDP_OK : ddpi_error_set(err, DDP_E_UNREACHABLE, "%s", tried);
}

struct ddpi_address ddpi_link_peer(const struct ddpi_link *link)
{
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof name;
    if (getpeername(link->fd, (struct sockaddr *)&name, &len) != 0)
        return (struct ddpi_address){0};
    return ddpi_address_of((const struct sockaddr *)&name);
}

ddp_status ddpi_link_send(struct ddpi_link *link, uint64_t deadline_ms, struct ddp_error *err)
{
    while (ddpi_buf_len(&link->out) > 0) {
        ssize_t sent =
            send(link->fd, ddpi_buf_head(&link->out), ddpi_buf_len(&link->out), MSG_NOSIGNAL);
        if (sent >= 0) {
            ddpi_buf_consume(&link->out, (size_t)sent);
            continue;
        }
        int sys_errno = errno == EAGAIN ? wait_for(link->fd, POLLOUT, deadline_ms) : errno;
        if (sys_errno != 0 && sys_errno != EINTR)
            return ddpi_error_sys(err, sys_errno, "sending");
    }
    return DDP_OK;
}

ddp_status ddpi_link_receive(struct ddpi_link *link, size_t want, uint64_t deadline_ms,
                             struct ddp_error *err)
{
    while (ddpi_buf_len(&link->in) < want) {
        size_t room = want - ddpi_buf_len(&link->in);
        uint8_t *at = ddpi_buf_reserve(&link->in, room);
        if (at == NULL)
            return ddpi_error_nomem(err, room);
        ssize_t got = recv(link->fd, at, room, 0);
        if (got > 0) {
            ddpi_buf_added(&link->in, (size_t)got);
            continue;
        }
        if (got == 0)
            return ddpi_error_set(err, DDP_E_CLOSED, "the server closed the connection");
        int sys_errno = errno == EAGAIN ? wait_for(link->fd, POLLIN, deadline_ms) : errno;
        if (sys_errno != 0 && sys_errno != EINTR)
            return ddpi_error_sys(err, sys_errno, "receiving");
    }
    return DDP_OK;
}
