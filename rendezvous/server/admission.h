/*
 * admission.h - which connections a server accepts, and which clients it serves.
 */
#ifndef DDPI_ADMISSION_H
#define DDPI_ADMISSION_H

#include "server_state.h"

/* Hooks of listeners and connections. */
void ddpi_server_on_connected(void *owner, const struct ddpi_listener *listener, int fd,
                              const struct sockaddr *peer);
void ddpi_server_on_shed(void *owner);
bool ddpi_server_on_fault(void *owner, const struct ddpi_conn *conn);
ddp_status ddpi_server_on_admit(void *owner, struct ddpi_conn *conn, struct ddp_error *err);

/* A connection has ended: if it was half-open, its peer's address has failed once more. */
void ddpi_server_left(struct ddpi_server *server, struct ddpi_conn *conn);
/* Its peer has been admitted, or it is closed. */
void ddpi_server_not_half_open(struct ddpi_server *server, struct ddpi_conn *conn);

#endif
