/*
 * tensor_place.h - where the buffers of a tensor lie: in host memory, or on a GPU.
 *
 * All tensors of an object that are on a GPU are on the same one, in one context. Their operations
 * and factors are enqueued on a stream of the object, so the program's streams hold up none of
 * them.
 */
#ifndef DDPI_TENSOR_PLACE_H
#define DDPI_TENSOR_PLACE_H

#include "tensors.h"

/* Look at the buffers of @op; the first ones on a GPU decide which it is. With the lock held, in
 * the thread of the program. DDP_E_INVALID: not all are in one place. */
ddp_status ddpi_tensor_place(struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                             bool *ret_on_gpu, struct ddp_error *err);

/* The handle of the memory, and the stream for steps on it; both NULL for host memory. */
struct ddpi_gradient_memory *ddpi_tensor_memory(const struct ddp_tensors *tensors, bool on_gpu);
void *ddpi_tensor_stream(const struct ddp_tensors *tensors, bool on_gpu);

/* Wait for what the program has put on its streams before tensors @own on a GPU, so that they can
 * be read. */
ddp_status ddpi_tensors_await(const struct ddp_tensors *tensors, struct ddp_tensor *const *own,
                              size_t count, struct ddp_error *err);

/* Wait for the stream of the object, and look whether an operation of @comm there has failed. */
ddp_status ddpi_tensors_settle(const struct ddp_tensors *tensors, ddp_comm *comm, bool on_gpu,
                               struct ddp_error *err);

/* Nothing is left on the stream of the object. */
void ddpi_tensors_leave_gpu(struct ddp_tensors *tensors);

#endif
