/*
 * operate.h - an operation as a caller wants it, blocking or not, on the memory type of its
 * buffers.
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

/* The same for @run, whose task, cause and ended are set; returns at once. Unless it is refused
 * (DDP_E_INVALID) or the communicator has failed, @run must stay where it is until it has ended:
 * what cannot begin fails in its turn. */
ddp_status ddpi_operate_start(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                              struct ddp_error *err);

/* The steps of both. Look at the buffers of @task: which type of memory it is for. */
ddp_status ddpi_operate_look(struct ddp_comm *comm, const struct ddpi_task *task, void *stream,
                             struct ddpi_buffers *ret_buffers, struct ddpi_memory **ret_memory,
                             struct ddp_error *err);

/* Put @run into the queue of @memory, its type. */
ddp_status ddpi_operate_submit(struct ddp_comm *comm, struct ddpi_memory *memory,
                               struct ddpi_run *run, void *stream, struct ddp_error *err);

/* Set *@ret_type to what memory @address is of, asked on behalf of @comm; any thread, and nothing
 * is carried out. DDP_E_INVALID: memory that no operation can use; the sentence begins with
 * @what. */
ddp_status ddpi_operate_find(struct ddp_comm *comm, const void *address, const char *what,
                             const struct ddpi_memory_type **ret_type, struct ddp_error *err);

/* @task cannot begin. Unless the call itself is refused (DDP_E_INVALID), other ranks wait for this
 * one: let it fail in its turn, and wait for that. */
ddp_status ddpi_operate_refuse(struct ddp_comm *comm, const struct ddpi_task *task,
                               ddp_status status, const struct ddp_error *cause,
                               struct ddp_error *err);

#endif
