/*
 * hint.h - explains ends of workers whose own messages are misleading. Pure.
 */
#ifndef DAEMON_HINT_H
#define DAEMON_HINT_H

#include "buf.h"

#include <stdbool.h>

/* Append a line to @out for each hint about a worker that ended with @wait_status, with @tail of
 * @len bytes as the end of its stderr. @interpreter ran its script or module; NULL: none. Returns
 * false when memory has run out. */
bool hint_add(int wait_status, const char *tail, size_t len, const char *interpreter,
              struct ddpi_buf *out);

/* Whether a worker that ended with @wait_status, and wrote @tail, is a program of Python that
 * cannot run as it is: its last exception was an error of syntax, or an import that failed. */
bool hint_broken_program(int wait_status, const char *tail, size_t len);

#endif
