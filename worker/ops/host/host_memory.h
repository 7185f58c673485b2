/*
 * host_memory.h - the memory type of the host: every buffer that no other type claims.
 */
#ifndef DDPI_HOST_MEMORY_H
#define DDPI_HOST_MEMORY_H

#include "run.h"

extern const struct ddpi_memory_type ddpi_host_memory;

/* Choose the algorithm of a collective on host memory: sets that of @run, and what it needs of the
 * task. All ranks choose the same. For runs within a run, too (drive.h). */
void ddpi_host_choose(struct ddp_comm *comm, struct ddpi_run *run);

/* The last step of ddp_comm_init(): returns when all ranks are in it, with the cards of all. */
ddp_status ddpi_host_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err);

#endif
