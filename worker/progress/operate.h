/*
 * operate.h - an operation as a caller wants it, blocking or not, on the memory type of its
 * buffers.
 */
#ifndef DDPI_OPERATE_H
#define DDPI_OPERATE_H

#include "run.h"

/* Carry out @task, which ddpi_task_prepare() has set; on memory whose operations are enqueued, put
 * it behind what is enqueued on @stream. On DDP_E_INVALID nothing was done; after any other failure
 * the communicator has failed. */
ddp_status ddpi_operate(struct ddp_comm *comm, const struct ddpi_task *task, void *stream,
                        struct ddp_error *err);

/* The same for @run, whose task, cause and ended are set; returns at once. Unless it fails, @run
 * must stay where it is until it has ended. */
ddp_status ddpi_operate_start(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                              struct ddp_error *err);

#endif
