/*
 * permissions.h - what each role may ask of the store. Pure.
 */
#ifndef DDPI_PERMISSIONS_H
#define DDPI_PERMISSIONS_H

#include "message.h"
#include "proof.h"

/* An agent may ask everything; a worker may change, and an observer only read. DDP_E_DENIED. To
 * which keys that applies is not decided here: who has a job sees no others (jobs.c). But
 * what rounds are made of is for agents alone to change, also where a worker sees all keys; and a
 * worker of epoch N, if that is not 0, changes no keys but those that begin with "gN/". */
ddp_status ddpi_role_permits(const struct ddpi_identity *identity,
                             const struct ddpi_message *request, struct ddp_error *err);

#endif
