/*
 * systemd.h - a service manager's two protocols, without its library: sockets that it hands over at
 * the start (LISTEN_FDS), and telling it how the service is (NOTIFY_SOCKET).
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
 * How many descriptors, from SYSTEMD_FIRST_FD on, were handed to the process @self. @pid and @count
 * are the variables LISTEN_PID and LISTEN_FDS, NULL if not set; meant for another process, they say
 * 0. DDP_E_INVALID: the sentence names the variable.
 */
DDP_MUST_CHECK ddp_status systemd_listen_fds(const char *pid, const char *count, pid_t self,
                                             uint32_t *ret_count, struct ddp_error *err);

/*
 * Send @state, such as "READY=1", to the datagram socket @path ("@name": an abstract one; NULL:
 * nobody wants to know, DDP_OK). Does not block.
 */
DDP_MUST_CHECK ddp_status systemd_notify(const char *path, const char *state,
                                         struct ddp_error *err);

#endif
