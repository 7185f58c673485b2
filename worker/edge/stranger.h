/*
 * stranger.h - who is at the other end of a Unix socket, and how to be rid of one who is another
 * user.
 *
 * A stranger can put descriptors into a connection, and the last reference to one may be there: its
 * close() is then ours, and takes as long as he likes (SO_LINGER), even if nothing was read. So he
 * is kept from it where the kernel can do that (SO_PASSRIGHTS, Linux 6.16), and elsewhere his
 * connection is closed by a thread that ends.
 */
#ifndef DDPI_STRANGER_H
#define DDPI_STRANGER_H

#include <stdbool.h>

/* Whether the process at the other end of the Unix socket @fd has our user, or is root's. */
bool ddpi_peer_is_ours(int fd);

/* Let descriptors come in at @fd, or not; those that are accepted are like their listener. Nothing
 * happens where the kernel cannot do it. */
void ddpi_pass_rights(int fd, bool allowed);

/* Close the Unix socket @fd to a stranger, without waiting for what he has left there. */
void ddpi_close_stranger(int fd);

#endif
