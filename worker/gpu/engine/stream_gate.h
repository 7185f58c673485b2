/*
 * stream_gate.h - the place of an operation in the caller's stream: where it begins, and what holds
 * the stream until it has ended.
 */
#ifndef DDPI_STREAM_GATE_H
#define DDPI_STREAM_GATE_H

#include "device_state.h"

static inline struct ddpi_gated *ddpi_gated_of(struct ddpi_run *run)
{
    return (struct ddpi_gated *)(void *)run->state;
}

/* What a run puts into the stream: two words for each ticket, and work of its own around them. */
typedef ddp_status ddpi_enqueue(struct ddpi_device *device, const struct ddpi_run *run,
                                ddpi_cu_stream stream, struct ddp_error *err);

/* Put @run, whose algorithm is set, into the queue of the communicator, and with @enqueue into
 * @stream; under the lock of those who enqueue. It has @tickets tickets. Blocks while
 * DDPI_GATED_MAX are out. If the driver refuses what @enqueue asks of it, the operation fails, and
 * the communicator with it. The context must be current. */
ddp_status ddpi_gate_put(struct ddpi_device *device, struct ddpi_run *run, uint32_t tickets,
                         ddpi_enqueue *enqueue, ddpi_cu_stream stream, struct ddp_error *err);

/* The driver has refused something. The communicator fails in its next
 * operation, or the one that is under way. */
void ddpi_gate_refuse(struct ddpi_device *device, ddp_status status, const struct ddp_error *cause);

/* For @enqueue: mark that the stream has reached @ticket, once there is room; hold the stream until
 * its gate opens. */
ddp_status ddpi_gate_stamp(struct ddpi_device *device, uint32_t ticket, ddpi_cu_stream stream,
                           struct ddp_error *err);
ddp_status ddpi_gate_hold(struct ddpi_device *device, uint32_t ticket, ddpi_cu_stream stream,
                          struct ddp_error *err);

/* The same for an operation that needs no more than that: it has one ticket. */
ddpi_enqueue ddpi_gate_pass;

/* Wait until the stream has reached @ticket. */
ddp_status ddpi_gate_await(struct ddpi_device *device, uint32_t ticket,
                           const struct ddpi_wait *wait);

/* Let the stream go on after @ticket, and after all earlier ones. */
void ddpi_gate_open(struct ddpi_device *device, uint32_t ticket);

/* Let other threads see how the time was spent. */
void ddpi_gate_publish_stages(struct ddpi_device *device);

/* @run has ended: open all its gates, and wait until no thread enqueues for it. */
void ddpi_gate_end(struct ddpi_device *device, struct ddpi_run *run);

#endif
