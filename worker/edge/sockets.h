/*
 * sockets.h - the socket calls of the handshake, with deadlines and sentences.
 */
#ifndef DDPI_SOCKETS_H
#define DDPI_SOCKETS_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { DDPI_FDS_MAX = 2, DDPI_ADDRESS_TEXT = 64 };

socklen_t ddpi_address_len(const struct sockaddr_storage *address);
/* "10.0.0.1:4711", "[::1]:4711". */
void ddpi_address_text(const struct sockaddr_storage *address, char text[DDPI_ADDRESS_TEXT]);

/* All descriptors that these return are non-blocking, close on exec, and children of fork() give
 * them back (private_fds.h). */

/* The address from which this machine reaches @host; nothing is sent. */
ddp_status ddpi_source_address(const char *host, uint16_t port, struct sockaddr_storage *ret,
                               struct ddp_error *err);

/* Listen at @address with any port; *@address becomes what others connect to. */
ddp_status ddpi_listen_tcp(struct sockaddr_storage *address, int *ret_fd, struct ddp_error *err);
/* Nobody who connects can put a descriptor there before ddpi_pass_rights() (stranger.h), where the
 * kernel knows how to keep him from it. */
ddp_status ddpi_listen_local(const char *name, int *ret_fd, struct ddp_error *err);

/* Begin to connect. Returns 0 (connected), EINPROGRESS (it will become writable), or another errno,
 * and then there is no descriptor. EAGAIN: nobody may wait in line there now. ECONNREFUSED: nobody
 * has this address, or on a Unix socket another user has it now. */
int ddpi_begin_tcp(const struct sockaddr_storage *address, int *ret_fd);
int ddpi_begin_local(const char *name, int *ret_fd);

/* What became of it: 0, EINPROGRESS, or the errno with which it failed. */
int ddpi_connect_result(int fd);

/* A connection that waits at @listener; -1 with errno, as accept(2). */
int ddpi_accept(int listener);

/* Two Unix sockets that are connected to each other. -1 with errno, as socketpair(2): of @fds those
 * that are not negative are to be closed all the same. */
int ddpi_socket_pair(int fds[2]);

/* No delay for small messages; a dead machine is noticed within ten seconds. */
void ddpi_tune_tcp(int fd);

/* Send all of @len bytes or none, with @nfds descriptors, without blocking. */
ddp_status ddpi_send_fds(int fd, const void *bytes, size_t len, const int *fds, size_t nfds,
                         struct ddp_error *err);

/* Receive up to @len bytes; descriptors that come with them are put behind the *@nfds that are
 * there already, at most DDPI_FDS_MAX in all. -1 with errno, 0 at the end, as recv(2). Descriptors
 * were lost: EMFILE, as this process may have no more, or EPROTO, as there were too many. */
ssize_t ddpi_recv_fds(int fd, void *bytes, size_t len, int *fds, size_t *nfds);

/* When the failure in @err (may be NULL) is that there are too many descriptors, say which limit
 * that is and what to do. Returns @status. */
ddp_status ddpi_advise_descriptors(struct ddp_error *err, ddp_status status);

#endif
