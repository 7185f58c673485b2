/*
 * private_fds.h - what belongs to this process alone, and not to children that it forks.
 *
 * A child is born with copies of all descriptors, and while one copy of a socket is open the kernel
 * tells nobody at its other end that this process has died. So a child of fork() gives its copies
 * back before fork() returns in it. A child of a raw clone() keeps them until it execs or ends, as
 * no code of ours runs in it; but it can be told from its parent all the same.
 */
#ifndef DDPI_PRIVATE_FDS_H
#define DDPI_PRIVATE_FDS_H

#include <stdint.h>

/* Sockets are made between these two, which keep other threads from forking meanwhile. They do not
 * nest, and what is done between them does not block. */
void ddpi_private_begin(void);
void ddpi_private_end(void);

/* Between them: children give @fd back, which is a socket. Returns @fd; a negative one as it is,
 * with errno as it is; or -1 with ENOMEM, and @fd is closed. How it is closed otherwise is the
 * caller's affair. */
int ddpi_private_add(int fd);

/* A byte that is 1 in this process and 0 in all its children, however they were born. NULL: there
 * is no memory for it. */
const uint8_t *ddpi_private_mark(void);
void ddpi_private_unmark(const uint8_t *mark); /* NULL is allowed */

#endif
