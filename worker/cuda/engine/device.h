/*
 * device.h - what a communicator does with memory of a GPU: the seam between comm.c and the
 * device engine.
 *
 * An operation on device memory is enqueued: the caller's stream writes that it has got there and
 * then waits for a word of the host; a thread of the communicator does the rest, one operation
 * after the other (device.c). The engine on host memory (engine.c) carries all that ranks tell each
 * other meanwhile, so headers, deadlines, deaths and aborts are the same for both.
 */
#ifndef DDPI_DEVICE_H
#define DDPI_DEVICE_H

#include "communicator.h"

struct ddpi_device;

/* Enqueue @job on @stream if it is on device memory; else, *@ret_taken is false, nothing is
 * enqueued any more, and the caller may run it. Costs some 100 ns in a process without libcuda. The
 * first operation of a communicator blocks until all ranks call theirs; later ones only when
 * hundreds are enqueued. DDP_E_INVALID: the sentence says what is wrong with which buffer, nothing
 * was done. */
ddp_status ddpi_device_take(struct ddp_comm *comm, const struct ddpi_job *job, void *stream,
                            bool *ret_taken, struct ddp_error *err);

/* Whether operations are enqueued: the communicator belongs to the thread that carries them out. */
bool ddpi_device_busy(struct ddpi_device *device);

/* Wait until none is. */
void ddpi_device_drain(struct ddpi_device *device);

/* Around a look at the communicator's counters, which that thread writes. */
void ddpi_device_lock(struct ddpi_device *device);
void ddpi_device_unlock(struct ddpi_device *device);

/* Between these two: fill in where the time of operations went. */
void ddpi_device_tell(const struct ddpi_device *device, struct ddp_comm_stats *stats);

/* End what is enqueued, as ddp_comm_abort() does, and the thread: the communicator is the caller's
 * again. NULL is allowed. */
void ddpi_device_stop(struct ddpi_device *device);

/* Free everything; it must have been stopped. The driver waits for all work of the context first,
 * that of other communicators too. NULL is allowed. */
void ddpi_device_destroy(struct ddpi_device *device);

#endif
