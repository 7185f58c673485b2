/*
 * staged_run.h - collectives and messages that go through pinned memory of the host, by the
 * algorithm for host memory.
 *
 * The caller's thread enqueues all of it at the call: kernels that copy to pinned memory, and back.
 * From then on the communicator's thread reads and writes words and pinned memory, and never calls
 * the driver: the driver makes calls wait while another thread of the program loads a kernel or
 * frees memory, and that thread waits for the stream that this operation holds.
 */
#ifndef DDPI_STAGED_RUN_H
#define DDPI_STAGED_RUN_H

#include "device_state.h"

/* Enqueue @run on @stream and put it into the queue of the communicator; see ddpi_gate_put(). */
ddp_status ddpi_staged_put(struct ddpi_device *device, struct ddpi_run *run, ddpi_cu_stream stream,
                           struct ddp_error *err);

/* Carry it out, in the communicator's thread; the stream has reached its first slice. */
ddp_status ddpi_staged_run(struct ddpi_device *device, struct ddpi_run *run);

/* Wait until the stream has copied the result of @run, whose gates are open. If it does not, the
 * communicator fails. */
void ddpi_staged_await_upload(struct ddpi_device *device, struct ddpi_run *run);

/* Allocate the pinned memory, before any stream is held. Free it, when no stream uses it any
 * more. */
ddp_status ddpi_staging_allocate(struct ddpi_device *device, struct ddp_error *err);
void ddpi_staging_free(struct ddpi_device *device);

#endif
