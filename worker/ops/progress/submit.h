/*
 * submit.h - the steps of an operation from its call to the queue: which type of memory it is for,
 * and what becomes of it if it cannot begin.
 */
#ifndef DDPI_SUBMIT_H
#define DDPI_SUBMIT_H

#include "run.h"

/* Look at the buffers of @task: which type of memory it is for. DDP_E_INVALID: it is refused. Any
 * other failure has made the communicator fail. */
ddp_status ddpi_submit_look(struct ddp_comm *comm, const struct ddpi_task *task, void *stream,
                            struct ddpi_buffers *ret_buffers, struct ddpi_memory **ret_memory,
                            struct ddp_error *err);

/* Put @run into the queue of @memory, its type. */
ddp_status ddpi_submit_run(struct ddp_comm *comm, struct ddpi_memory *memory, struct ddpi_run *run,
                           void *stream, struct ddp_error *err);

/* Set *@ret_type to what memory @address is of, asked on behalf of @comm; any thread, and nothing
 * is carried out. DDP_E_INVALID: memory that no operation can use; the sentence begins with
 * @what. */
ddp_status ddpi_submit_find_type(struct ddp_comm *comm, const void *address, const char *what,
                                 const struct ddpi_memory_type **ret_type, struct ddp_error *err);

/* @task cannot begin. Unless the call itself is refused (DDP_E_INVALID), other ranks wait for this
 * one: let it fail in its turn, and wait for that. */
ddp_status ddpi_submit_refuse(struct ddp_comm *comm, const struct ddpi_task *task,
                              ddp_status status, const struct ddp_error *cause,
                              struct ddp_error *err);

/* Begin @run, whose task is prepared and whose cause and ended are set; returns at once. Unless it
 * is refused (DDP_E_INVALID) or the communicator has failed, @run must stay where it is until it
 * has ended: what cannot begin fails in its turn. */
ddp_status ddpi_submit_start(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                             struct ddp_error *err);

#endif
