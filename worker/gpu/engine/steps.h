/*
 * steps.h - the steps that the ways of an operation on a GPU have in common: waiting for the GPU
 * and for other ranks, failing, exchanging records.
 */
#ifndef DDPI_STEPS_H
#define DDPI_STEPS_H

#include "device_state.h"
#include "wait.h"

/* A capture in another thread of the program forbids driver calls to all threads but those that set
 * the relaxed mode. Returns the previous mode of this thread, for the caller to restore. */
unsigned ddpi_device_capture_mode(const struct ddpi_device *device, unsigned mode);

/* The operation that waits, and its deadline. */
struct ddpi_wait ddpi_device_wait(const struct ddpi_task *task);

/* Each rank has put a record of @size bytes at its place in @records: all ranks get all records. */
ddp_status ddpi_device_gather(struct ddpi_device *device, const struct ddpi_task *task,
                              void *records, size_t size);

/* Wait until the GPU has brought the word to @value; meanwhile read messages of peers. */
ddp_status ddpi_device_await(struct ddpi_device *device, const struct ddpi_wait *wait,
                             uint32_t word, uint32_t value);

/* Fail if the driver has refused what a thread of the program has asked of it. */
ddp_status ddpi_device_check_refusal(struct ddpi_device *device);

/* The current operation has completed this stage. */
void ddpi_device_stage(struct ddpi_device *device, enum ddpi_stage stage);

/* Make the communicator fail with what @err says. */
ddp_status ddpi_device_fail(struct ddpi_device *device, ddp_status status,
                            const struct ddp_error *err);

#endif
