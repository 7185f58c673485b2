/*
 * systemd.h - two protocols of a service manager, without its library: inherited listening sockets
 * (LISTEN_FDS), and notifications about the state of the service (NOTIFY_SOCKET).
 */
#ifndef CMD_SYSTEMD_H
#define CMD_SYSTEMD_H

#include <ddprun/status.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SYSTEMD_FIRST_FD = 3,
    SYSTEMD_FDS_MAX = 64,
};

/*
 * Count the descriptors, from SYSTEMD_FIRST_FD on, that were passed to the process @self. @pid and
 * @count are the variables LISTEN_PID and LISTEN_FDS, NULL if not set. 0: @pid is another process.
 * DDP_E_INVALID: @err names the variable.
 */
DDP_MUST_CHECK ddp_status systemd_listen_fds(const char *pid, const char *count, pid_t self,
                                             uint32_t *ret_count, struct ddp_error *err);

/*
 * Send @state, such as "READY=1", to the datagram socket @path. "@name": an abstract socket; NULL:
 * do nothing. Does not block.
 */
DDP_MUST_CHECK ddp_status systemd_notify(const char *path, const char *state,
                                         struct ddp_error *err);

#endif
