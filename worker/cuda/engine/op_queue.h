/*
 * op_queue.h - the operations of a communicator that are enqueued, and the thread that runs them.
 */
#ifndef DDPI_OP_QUEUE_H
#define DDPI_OP_QUEUE_H

#include "device_state.h"

/* Start the thread, which calls @run for each operation. */
ddp_status ddpi_queue_start(struct ddpi_device *device, ddpi_queue_run *run, struct ddp_error *err);

/* Enqueue @queued. The context must be current. Do not call it under the lock: the driver blocks
 * while the stream is full, until the thread opens the gate, for which it takes the lock. */
ddp_status ddpi_queue_put(struct ddpi_device *device, struct ddpi_queued *queued,
                          ddpi_cu_stream stream, struct ddp_error *err);

/* Whether operations are enqueued; and wait until none is. */
bool ddpi_queue_is_busy(struct ddpi_device *device);
void ddpi_queue_drain(struct ddpi_device *device);

void ddpi_queue_read_stats(struct ddpi_device *device, struct ddp_comm_stats *stats);

/* Abort what is enqueued, as ddp_comm_abort() does, and end the thread: the communicator is the
 * caller's again. */
void ddpi_queue_stop(struct ddpi_device *device);

#endif
