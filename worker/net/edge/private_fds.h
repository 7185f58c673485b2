/*
 * private_fds.h - descriptors that belong to this process alone, and not to children that it forks.
 *
 * A forked child has copies of all descriptors. While a copy of a socket is open, the kernel does
 * not tell the peer that this process has died, and while one of a memory file is, its memory stays
 * in use. So a child of fork() closes its copies before fork() returns in it. A child of a raw
 * clone() keeps them until it execs or ends, as none of our code runs in it; but the mark tells it
 * from its parent.
 */
#ifndef DDPI_PRIVATE_FDS_H
#define DDPI_PRIVATE_FDS_H

#include <stdbool.h>
#include <stdint.h>

/* Create descriptors between these two calls, which keep other threads from forking meanwhile. They
 * do not nest; do not block between them. */
void ddpi_private_begin(void);
void ddpi_private_end(void);

/* Between them: have children close @fd. Returns @fd. A negative @fd is returned as it is, with
 * errno unchanged. -1 with ENOMEM: @fd is closed. The caller may close it without telling
 * anyone. */
int ddpi_private_add(int fd);

/* The same; false: out of memory, and @fd stays open. */
bool ddpi_private_note(int fd);

/* A byte that is 1 in this process and 0 in all its children, however they were created. NULL: out
 * of memory. */
const uint8_t *ddpi_private_mark(void);
void ddpi_private_unmark(const uint8_t *mark); /* NULL is allowed */

#endif
