/*
 * operate.h - runs an operation on the memory type of its buffers.
 */
#ifndef DDPI_OPERATE_H
#define DDPI_OPERATE_H

#include "communicator.h"

/* Run @task, which ddpi_task_prepare() has set, on the memory of its buffers. On DDP_E_INVALID
 * nothing was done; after any other failure the communicator has failed. */
ddp_status ddpi_operate(struct ddp_comm *comm, struct ddpi_task *task, void *stream,
                        struct ddp_error *err);

#endif
