/*
 * jobs.h - the jobs of a server: which keys their clients see, their epochs, and their data ports.
 */
#ifndef DDPI_JOBS_H
#define DDPI_JOBS_H

#include "server_state.h"

/* Assign a client to the job of its port, or to the one that it names, or to none. */
ddp_status ddpi_server_enter_job(struct ddpi_server *server, struct ddpi_conn *conn,
                                 struct ddp_error *err);

/* The requests FENCE and OPEN_PORT. */
ddp_status ddpi_server_fence(struct ddpi_server *server, struct ddpi_conn *conn,
                             const struct ddpi_message *request, struct ddpi_message *reply,
                             struct ddp_error *err);
ddp_status ddpi_server_open_port(struct ddpi_server *server, struct ddpi_conn *conn,
                                 const struct ddpi_message *request, struct ddpi_message *reply,
                                 struct ddp_error *err);

/* 0 until the job is first fenced. A value that is not a number counts as the last epoch, which
 * admits no worker. */
uint64_t ddpi_server_epoch(const struct ddpi_server *server, const char *job);
/* End all epochs of @job before @epoch. DDP_E_CONFLICT: the job is in a later one. */
ddp_status ddpi_server_set_epoch(struct ddpi_server *server, const char *job, uint64_t epoch,
                                 struct ddp_error *err);

#endif
