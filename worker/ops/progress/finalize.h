/*
 * finalize.h - ends the use of a communicator such that no rank misses anything.
 */
#ifndef DDPI_FINALIZE_H
#define DDPI_FINALIZE_H

#include "run.h"

/* Let no more operations begin, wait until all have ended, and until the peers have taken all bytes
 * that this rank has sent: for the latter at most @timeout_ms. */
ddp_status ddpi_finalize(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err);

#endif
