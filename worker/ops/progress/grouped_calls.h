/*
 * grouped_calls.h - calls that begin together: a thread opens a group, its blocking calls are only
 * noted, and all begin when it closes the group.
 */
#ifndef DDPI_GROUPED_CALLS_H
#define DDPI_GROUPED_CALLS_H

#include "run.h"

/* As ddp_group_start() and ddp_group_end() (ddprun/comm_requests.h). */
ddp_status ddpi_group_open(struct ddp_comm *comm, struct ddp_error *err);
ddp_status ddpi_group_close(struct ddp_comm *comm, struct ddp_error *err);

/* Whether the calling thread has a group open. */
bool ddpi_group_is_open(const struct ddp_comm *comm);

/* DDP_E_INVALID if it has: the function @name cannot be called in a group. */
ddp_status ddpi_group_refuse(const struct ddp_comm *comm, const char *name, struct ddp_error *err);

/* Forget what is noted; no thread uses @comm any more. */
void ddpi_group_drop(struct ddp_comm *comm);

/* Carry out @count tasks, as ddpi_operate() does one, such that all are under way at once. They
 * become part of the calling thread's group if it has one open. DDP_E_INVALID, if a task is
 * refused: none has begun, unless only its type of memory refuses it. */
ddp_status ddpi_operate_together(struct ddp_comm *comm, const struct ddpi_task *tasks,
                                 unsigned count, void *stream, struct ddp_error *err);

#endif
