/*
 * ring_engine.h - runs the ring schedule of a task on host memory.
 */
#ifndef DDPI_RING_ENGINE_H
#define DDPI_RING_ENGINE_H

#include "wait.h"

/* Run @task to its end. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_host_ring(struct ddp_comm *comm, struct ddpi_task *task);

#endif
