/*
 * ring_engine.h - the algorithm that carries out the ring schedule of a task on host memory.
 */
#ifndef DDPI_RING_ENGINE_H
#define DDPI_RING_ENGINE_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_ring_algorithm;

/* Carry out @task within a run that executes in the calling thread. Anything but DDP_OK has made
 * the communicator fail. */
ddp_status ddpi_host_ring(struct ddp_comm *comm, const struct ddpi_task *task);

#endif
