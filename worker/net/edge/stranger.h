/*
 * stranger.h - which user is at the other end of a Unix socket, and how to close a connection to
 * another user.
 *
 * Another user can send descriptors over the connection, and one of them may be the last reference
 * to its file: closing it is then up to us, and takes as long as that user likes (SO_LINGER), even
 * if we read nothing. So the kernel is told to accept none where it can (SO_PASSRIGHTS,
 * Linux 6.16); elsewhere a thread closes the connection as it ends.
 */
#ifndef DDPI_STRANGER_H
#define DDPI_STRANGER_H

#include <stdbool.h>

/* Whether the process at the other end of the Unix socket @fd runs as our user or as root. */
bool ddpi_peer_is_ours(int fd);

/* Accept descriptors at @fd, or not; accepted connections inherit this from their listener. Does
 * nothing if the kernel does not support it. */
void ddpi_pass_rights(int fd, bool allowed);

/* Close the Unix socket @fd to another user, without waiting for the descriptors in it. */
void ddpi_close_stranger(int fd);

#endif
