/*
 * sockets.h - the socket calls of the handshake, with deadlines and sentences.
 */
#ifndef DDPI_SOCKETS_H
#define DDPI_SOCKETS_H

#include "card.h"

enum { DDPI_FDS_MAX = 2 };

/* All descriptors that these return are non-blocking and close on exec. */

/* The address from which this machine reaches @host; nothing is sent. */
ddp_status ddpi_source_address(const char *host, uint16_t port, struct sockaddr_storage *ret,
                               struct ddp_error *err);

/* Listen at @address with any port; *@address becomes what others connect to. */
ddp_status ddpi_listen_tcp(struct sockaddr_storage *address, int *ret_fd, struct ddp_error *err);
ddp_status ddpi_listen_local(const char *name, int *ret_fd, struct ddp_error *err);

/* Begin to connect. Returns 0 (connected), EINPROGRESS (it will become writable), or another errno,
 * and then there is no descriptor. EAGAIN: nobody may wait in line there now. */
int ddpi_begin_tcp(const struct sockaddr_storage *address, int *ret_fd);
int ddpi_begin_local(const char *name, int *ret_fd);

/* What became of it: 0, EINPROGRESS, or the errno with which it failed. */
int ddpi_connect_result(int fd);

/* No delay for small messages; a dead machine is noticed within ten seconds. */
void ddpi_tune_tcp(int fd);

/* The process at the other end of the Unix socket @fd has our user. */
bool ddpi_peer_is_us(int fd);

/* Send all of @len bytes or none, with @nfds descriptors, without blocking. */
ddp_status ddpi_send_fds(int fd, const void *bytes, size_t len, const int *fds, size_t nfds,
                         struct ddp_error *err);

/* Receive up to @len bytes; descriptors that come with them are put behind the *@nfds that are
 * there already, at most DDPI_FDS_MAX in all. -1 with errno, 0 at the end, as recv(2); EPROTO:
 * descriptors were lost, as this process may have no more. */
ssize_t ddpi_recv_fds(int fd, void *bytes, size_t len, int *fds, size_t *nfds);

#endif
