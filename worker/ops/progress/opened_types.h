/*
 * opened_types.h - which types of memory (memory.h) this process uses.
 */
#ifndef DDPI_OPENED_TYPES_H
#define DDPI_OPENED_TYPES_H

#include "memory.h"

/* Open the types that this process has begun to use since the last call; before each operation. */
ddp_status ddpi_types_open_used(struct ddp_comm *comm, struct ddp_error *err);

/* Whether no type but the host's is open. */
bool ddpi_types_only_host_is_open(const struct ddpi_memories *memories);

/* The same, and this process has not begun to use another one since. */
bool ddpi_types_only_host_is_used(const struct ddpi_memories *memories);

#endif
