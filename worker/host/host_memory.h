/*
 * host_memory.h - the memory type of the host: every buffer that no other type claims.
 */
#ifndef DDPI_HOST_MEMORY_H
#define DDPI_HOST_MEMORY_H

#include "run.h"

extern const struct ddpi_memory_type ddpi_host_memory;

/* The last step of ddp_comm_init(): returns when all ranks are in it, with the cards of all. */
ddp_status ddpi_host_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err);

#endif
