/*
 * refused_run.h - an operation that this rank cannot begin, although other ranks wait for it: when
 * its turn comes, it makes the communicator fail. So whoever drives writes the cause, after what
 * was called before.
 */
#ifndef DDPI_REFUSED_RUN_H
#define DDPI_REFUSED_RUN_H

#include "run.h"

/* Let @run, whose task is set, end with @status, and a sentence that is "rank N: " and @why. */
void ddpi_refused_init(struct ddpi_run *run, ddp_status status, const char *why);

#endif
