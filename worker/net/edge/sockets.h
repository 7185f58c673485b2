/*
 * sockets.h - socket calls without blocking, with error sentences.
 */
#ifndef DDPI_SOCKETS_H
#define DDPI_SOCKETS_H

#include "tcp.h"

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { DDPI_FDS_MAX = 2, DDPI_ADDRESS_TEXT = 64 };

socklen_t ddpi_address_len(const struct sockaddr_storage *address);
/* "10.0.0.1:4711", "[::1]:4711". */
void ddpi_address_text(const struct sockaddr_storage *address, char text[DDPI_ADDRESS_TEXT]);

/* All descriptors that these return are non-blocking and close-on-exec, and forked children close
 * them (private_fds.h). */

/* Listen at @address on any port; *@address becomes the address to connect to. */
ddp_status ddpi_listen_tcp(struct sockaddr_storage *address, int *ret_fd, struct ddp_error *err);
/* Where the kernel supports it, peers cannot send descriptors before ddpi_pass_rights()
 * (stranger.h). */
ddp_status ddpi_listen_local(const char *name, int *ret_fd, struct ddp_error *err);

/* Close *@fd unless it is negative; it is -1 then. */
void ddpi_close_fd(int *fd);

/* Begin to connect. Returns 0 (connected), EINPROGRESS (poll for writing), or another errno,
 * without a descriptor. EAGAIN: the backlog is full. ECONNREFUSED: no process listens there or, on
 * a Unix socket, another user does. */
int ddpi_begin_tcp(const struct sockaddr_storage *address, int *ret_fd);
int ddpi_begin_local(const char *name, int *ret_fd);

/* The result: 0, EINPROGRESS, or the errno of the failure. */
int ddpi_connect_result(int fd);

/* Accept a connection of @listener; -1 with errno, as accept(2). */
int ddpi_accept(int listener);

/* Two connected Unix sockets. -1 with errno, as socketpair(2): close those of @fds that are not
 * negative even then. */
int ddpi_socket_pair(int fds[2]);

/* Of a connection by TCP, ddpi_tune_tcp() is all that there is to set. TCP_USER_TIMEOUT would also
 * end those to a rank that computes, and so does not read; probes on the control connection find
 * machines that are gone. */

/* Send all @len bytes or none, with @nfds descriptors, without blocking. */
ddp_status ddpi_send_fds(int fd, const void *bytes, size_t len, const int *fds, size_t nfds,
                         struct ddp_error *err);

/* Receive up to @len bytes, and append the descriptors that come with them to the *@nfds at @fds,
 * at most DDPI_FDS_MAX in all. -1 with errno, 0 at the end, as recv(2). If descriptors were lost,
 * errno is EMFILE (this process may not have more) or EPROTO (there were too many). */
ssize_t ddpi_recv_fds(int fd, void *bytes, size_t len, int *fds, size_t *nfds);

#endif
