/*
 * permissions.h - which requests each role may make. Pure.
 */
#ifndef DDPI_PERMISSIONS_H
#define DDPI_PERMISSIONS_H

#include "message.h"
#include "proof.h"

/* An agent may make every request but that of keepers; a worker may change keys, and an observer
 * only read them. DDP_E_DENIED. That a client of a job sees no other keys is not checked here
 * (jobs.c). But only agents may change the keys of rounds, even if a worker sees all keys; and a
 * worker of an epoch N that is not 0 may change only keys that begin with "gN/". */
ddp_status ddpi_role_permits(const struct ddpi_identity *identity,
                             const struct ddpi_message *request, struct ddp_error *err);

#endif
