/*
 * systemd.c - parses two variables, and sends one datagram. Owns nothing.
 */
#include "systemd.h"

#include "error.h"
#include "parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

ddp_status systemd_listen_fds(const char *pid, const char *count, pid_t self, uint32_t *ret_count,
                              struct ddp_error *err)
{
    int64_t for_pid, fds = 0;
    if (pid != NULL && count != NULL) {
        ddp_status status = ddpi_parse_int(pid, 1, INT32_MAX, &for_pid, err);
        if (status != DDP_OK)
            return ddpi_error_wrap(err, status, "the environment variable LISTEN_PID");
        status = ddpi_parse_int(count, 0, SYSTEMD_FDS_MAX, &fds, err);
        if (status != DDP_OK)
            return ddpi_error_wrap(err, status, "the environment variable LISTEN_FDS");
        if (for_pid != self)
            fds = 0;
    }
    *ret_count = (uint32_t)fds;
    return DDP_OK;
}

ddp_status systemd_notify(const char *path, const char *state, struct ddp_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path != NULL ? strlen(path) : 0;
    if (len == 0)
        return DDP_OK;
    if ((*path != '/' && *path != '@') || len >= sizeof address.sun_path)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "NOTIFY_SOCKET: '%s' is neither a short absolute path nor @NAME",
                              path);
    memcpy(address.sun_path, path, len);
    if (*path == '@')
        address.sun_path[0] = '\0';
    socklen_t address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot make a socket for NOTIFY_SOCKET");
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                          (struct sockaddr *)&address, address_len);
    int saved = errno;
    close(fd);
    return sent >= 0 ? DDP_OK
                     : ddpi_error_sys(err, saved, "NOTIFY_SOCKET: cannot write to '%s'", path);
}
