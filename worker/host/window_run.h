/*
 * window_run.h - passes the file of a window (windows.h) from rank 0 round the ring.
 */
#ifndef DDPI_WINDOW_RUN_H
#define DDPI_WINDOW_RUN_H

#include "communicator.h"

/* On rank 0, *@fd is the file; other ranks get it there, -1 before. All ranks call it, as an
 * operation of @comm, in which they share memory. Blocks. The caller closes *@fd in any case. */
ddp_status ddpi_window_pass(struct ddp_comm *comm, int *fd, struct ddp_error *err);

#endif
