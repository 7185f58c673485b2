/*
 * device.h - a communicator on a GPU.
 *
 * An operation is enqueued: the caller's stream writes a word when it gets there, and then waits
 * for a word of the host; the copies around that are enqueued by the caller, too. The
 * communicator's thread does the rest, one operation after the other, on host memory, so headers,
 * deadlines, deaths and aborts are the same for both.
 */
#ifndef DDPI_DEVICE_H
#define DDPI_DEVICE_H

#include "device_state.h"

/* With the driver's table only, which is needed to ask what memory a buffer is; the rest comes with
 * the first operation. A driver that is too old has no table: @unfit and @refusal say so. */
ddp_status ddpi_device_create(struct ddp_comm *comm, struct ddpi_device **ret_device);

/* Give back a context that was retained, if one was. */
void ddpi_device_release_context(struct ddpi_device *device);

/* Free everything; no run may be left. The driver waits for all work of the context first, that of
 * other communicators too. */
void ddpi_device_destroy(struct ddpi_device *device);

/* Enqueue @run, after having prepared for it, under the lock for that. The communicator's context
 * must be current. Blocks when hundreds are enqueued; the first collective of ranks that are
 * threads of one process also until all ranks call theirs. */
ddp_status ddpi_device_submit(struct ddpi_device *device, struct ddpi_run *run,
                              ddpi_cu_stream stream, struct ddp_error *err);

/* What the driver has refused, or what it says of a GPU that has failed, with the rank's sentence;
 * then the communicator fails when it next waits for a stream. Any thread. */
ddp_status ddpi_device_check(struct ddpi_device *device, struct ddp_error *err);

void ddpi_device_read_stats(struct ddpi_device *device, struct ddp_comm_stats *stats);

#endif
