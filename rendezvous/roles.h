/*
 * roles.h - what each role may ask of the store. Pure.
 */
#ifndef DDPI_ROLES_H
#define DDPI_ROLES_H

#include "auth.h"
#include "message.h"

/* An agent may ask everything; a worker may change, and an observer only read. Both are kept to the
 * keys of their job, if they have one: those that begin with "job/NAME/". DDP_E_DENIED. */
ddp_status ddpi_role_permits(const struct ddpi_identity *identity,
                             const struct ddpi_message *request, struct ddp_error *err);

#endif
