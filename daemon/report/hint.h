/*
 * hint.h - explains ends of workers whose own messages are misleading. Pure.
 */
#ifndef DAEMON_HINT_H
#define DAEMON_HINT_H

#include "buf.h"
#include "report.h"

#include <stdbool.h>

/* Append a line to @out for each hint about @worker. @interpreter ran its script or module; NULL:
 * none. Returns false when memory has run out. */
bool hint_add(const struct report_worker *worker, const char *interpreter, struct ddpi_buf *out);

#endif
