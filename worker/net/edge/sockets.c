/*
 * sockets.c - socket calls without blocking, with error sentences. Owns nothing: descriptors go to
 * the caller.
 */
#include "sockets.h"

#include "clock.h"
#include "error.h"
#include "private_fds.h"
#include "stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 }; /* ranks that compute accept late; the system may allow fewer */

void ddpi_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

socklen_t ddpi_address_len(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void ddpi_address_text(const struct sockaddr_storage *address, char text[DDPI_ADDRESS_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(text, DDPI_ADDRESS_TEXT, "%s:%u", host, ntohs(v4->sin_port));
    } else {
        const struct sockaddr_in6 *v6 = (const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(text, DDPI_ADDRESS_TEXT, "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}

/* A socket that forked children close. */
static int open_socket(int family)
{
    ddpi_private_begin();
    int fd = ddpi_private_add(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ddpi_private_end();
    return fd;
}

int ddpi_accept(int listener)
{
    ddpi_private_begin();
    int fd = ddpi_private_add(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    ddpi_private_end();
    return fd;
}

int ddpi_socket_pair(int fds[2])
{
    int made[2];
    ddpi_private_begin();
    int result = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made);
    for (int i = 0; result == 0 && i < 2; i++)
        fds[i] = ddpi_private_add(made[i]);
    ddpi_private_end();
    return result == 0 && (fds[0] < 0 || fds[1] < 0) ? -1 : result;
}

ddp_status ddpi_listen_tcp(struct sockaddr_storage *address, int *ret_fd, struct ddp_error *err)
{
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)address)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = 0;
    char text[DDPI_ADDRESS_TEXT];
    ddpi_address_text(address, text);
    socklen_t len = sizeof *address;
    int fd = open_socket(address->ss_family);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, ddpi_address_len(address)) != 0 ||
        listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        ddp_status status = ddpi_error_sys(err, errno, "listen on %s", text);
        if (fd >= 0)
            close(fd);
        return status;
    }
    *ret_fd = fd;
    return DDP_OK;
}

/* In the abstract namespace: no file, and it ends with the socket. */
static socklen_t local_address(const char *name, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t max = sizeof ret->sun_path - 1;
    size_t len = strlen(name) < max ? strlen(name) : max;
    memcpy(ret->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static int local_socket(void)
{
    int fd = open_socket(AF_UNIX);
    if (fd >= 0)
        ddpi_pass_rights(fd, false);
    return fd;
}

ddp_status ddpi_listen_local(const char *name, int *ret_fd, struct ddp_error *err)
{
    struct sockaddr_un address;
    socklen_t len = local_address(name, &address);
    int fd = local_socket();
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, BACKLOG) != 0) {
        ddp_status status = ddpi_error_sys(err, errno, "listen on a Unix socket");
        if (fd >= 0)
            close(fd);
        return status;
    }
    *ret_fd = fd;
    return DDP_OK;
}

/* Takes over @fd. */
static int begin_to(int fd, const struct sockaddr *address, socklen_t len, int *ret_fd)
{
    if (fd < 0)
        return errno;
    int error = connect(fd, address, len) == 0 ? 0 : errno;
    if (error == EINTR)
        error = EINPROGRESS;
    if (error == 0 || error == EINPROGRESS)
        *ret_fd = fd;
    else
        close(fd);
    return error;
}

int ddpi_begin_tcp(const struct sockaddr_storage *address, int *ret_fd)
{
    return begin_to(open_socket(address->ss_family), (const struct sockaddr *)address,
                    ddpi_address_len(address), ret_fd);
}

int ddpi_begin_local(const char *name, int *ret_fd)
{
    struct sockaddr_un address;
    socklen_t len = local_address(name, &address);
    int error = begin_to(local_socket(), (const struct sockaddr *)&address, len, ret_fd);
    if (error != 0 || ddpi_peer_is_ours(*ret_fd))
        return error;
    ddpi_close_stranger(*ret_fd); /* the rank has died, and another user has taken its name */
    *ret_fd = -1;
    return ECONNREFUSED;
}

int ddpi_connect_result(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLOUT};
    if (poll(&pollfd, 1, 0) <= 0)
        return EINPROGRESS;
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
}

ddp_status ddpi_send_fds(int fd, const void *bytes, size_t len, const int *fds, size_t nfds,
                         struct ddp_error *err)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(DDPI_FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (nfds > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS,
                                          .cmsg_len = CMSG_LEN(nfds * sizeof(int))};
        memcpy(CMSG_DATA(&control.header), fds, nfds * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return ddpi_error_sys(err, errno, "send %zu bytes", len);
    if ((size_t)sent < len)
        return ddpi_error_set(err, DDP_E_SYSTEM, "a socket has no room for %zu bytes", len);
    return DDP_OK;
}

static void keep_fds(struct msghdr *message, int *fds, size_t *nfds)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
            if (*nfds < DDPI_FDS_MAX)
                fds[(*nfds)++] = fd;
            else
                close(fd);
        }
    }
}

static bool may_have_one_more(int fd)
{
    int more = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (more < 0)
        return errno != EMFILE;
    close(more);
    return true;
}

ssize_t ddpi_recv_fds(int fd, void *bytes, size_t len, int *fds, size_t *nfds)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(DDPI_FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0)
        keep_fds(&message, fds, nfds);
    if (got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
        errno = may_have_one_more(fd) ? EPROTO : EMFILE;
        return -1;
    }
    return got;
}
