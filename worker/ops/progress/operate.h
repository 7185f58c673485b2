/*
 * operate.h - an operation that blocks its caller, on the memory type of its buffers.
 */
#ifndef DDPI_OPERATE_H
#define DDPI_OPERATE_H

#include "run.h"

/* Carry out the task of @run, which is not prepared yet (task.h); nothing else of @run need be set.
 * On memory whose operations are enqueued, put it behind what is enqueued on @stream. If the
 * calling thread has opened a group, only note it. On DDP_E_INVALID nothing was done; after any
 * other failure the communicator has failed. */
ddp_status ddpi_operate(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                        struct ddp_error *err);

#endif
