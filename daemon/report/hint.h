/*
 * hint.h - what the end of a worker most likely means, where its words alone send people the wrong
 * way. Pure.
 */
#ifndef DAEMON_HINT_H
#define DAEMON_HINT_H

#include "buf.h"
#include "report.h"

#include <stdbool.h>

/* Append a line to @out for each hint there is about @worker. @interpreter: what ran its script or
 * module; NULL: none of ours. Returns false when memory ran out on the way. */
bool hint_add(const struct report_worker *worker, const char *interpreter, struct ddpi_buf *out);

#endif
