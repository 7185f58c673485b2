/*
 * packing.h - a list of buffers as one, for algorithms that do not work in the buffers of a list.
 */
#ifndef DDPI_PACKING_H
#define DDPI_PACKING_H

#include "communicator.h"
#include "run.h"

/* Before the algorithm of @run begins: from here on its task has one buffer, in place. Anything but
 * DDP_OK has made the communicator fail. */
ddp_status ddpi_pack(struct ddp_comm *comm, struct ddpi_run *run);

/* After its end, also when it has not begun: write the result to the list if @status is DDP_OK, and
 * free that buffer. */
void ddpi_unpack(const struct ddp_comm *comm, struct ddpi_run *run, ddp_status status);

#endif
