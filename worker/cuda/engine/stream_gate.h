/*
 * stream_gate.h - the place of an operation in the caller's stream: where it begins, and what holds
 * the stream until it has ended.
 */
#ifndef DDPI_STREAM_GATE_H
#define DDPI_STREAM_GATE_H

#include "device_state.h"

/* Put @run, whose algorithm is set, into @stream and into the queue of the communicator, under the
 * lock of those who enqueue. Blocks while DDPI_GATED_MAX operations are enqueued. The context must
 * be current. */
ddp_status ddpi_gate_put(struct ddpi_device *device, struct ddpi_run *run, ddpi_cu_stream stream,
                         struct ddp_error *err);

/* Wait until the stream has reached @run. */
ddp_status ddpi_gate_await(struct ddpi_device *device, const struct ddpi_run *run,
                           const struct ddpi_wait *wait);

/* @run has ended: let the stream go on. */
void ddpi_gate_open(struct ddpi_device *device, const struct ddpi_run *run);

#endif
