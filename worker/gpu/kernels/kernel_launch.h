/*
 * kernel_launch.h - starts the kernels of reduce_copy.cu: ddpi_reduce_many() and ddpi_scale() on
 * the device.
 */
#ifndef DDPI_KERNEL_LAUNCH_H
#define DDPI_KERNEL_LAUNCH_H

#include "driver.h"
#include "kernels.h"
#include "reduce.h"

/* The kernels, loaded into one context: the one that was current. */
struct ddpi_kernels {
    const struct ddpi_cuda *cuda; /* not owned */
    ddpi_cu_module module;        /* NULL until they are loaded */
    uint32_t multiprocessors;
    ddpi_cu_function reduce_copy[DDP_INT64 + 1][DDP_PRODUCT + 1];
    ddpi_cu_function copy[sizeof(uint64_t) + 1]; /* by bytes of an element */
    ddpi_cu_function scale[DDP_BFLOAT16 + 1];
    ddpi_cu_function cast[DDP_BFLOAT16 + 1]; /* by the type of the input */
};

/* DDP_E_INVALID: there is no kernel for this reduction of this type, which
 * ddpi_reduce_check() allows. Copies there are for every type. */
ddp_status ddpi_kernels_check(ddp_dtype dtype, ddp_reduce_op op,
                              struct ddp_error *err) DDP_MUST_CHECK;

/* Loads nothing. @cuda must outlive @kernels. */
void ddpi_kernels_init(struct ddpi_kernels *kernels, const struct ddpi_cuda *cuda);

/* The context of the kernels must be current, or destroyed. */
void ddpi_kernels_finish(struct ddpi_kernels *kernels);

/*
 * Load the kernels into the current context, unless they are loaded. Takes milliseconds, and the
 * driver may wait for all work of the context: call it before anything there waits for the caller,
 * not at the first launch.
 *
 * DDP_E_UNSUPPORTED: the library was built without kernels. DDP_E_CUDA: the driver refused.
 */
ddp_status ddpi_kernels_load(struct ddpi_kernels *kernels, struct ddp_error *err) DDP_MUST_CHECK;

/*
 * Enqueue @work, with device addresses for its pointers, on @stream, in the context of the kernels;
 * loads them if they are not loaded. One thread at a time.
 *
 * DDP_E_INVALID: a buffer is not aligned to its elements; nothing was enqueued. Otherwise as
 * ddpi_kernels_check() and ddpi_kernels_load().
 */
ddp_status ddpi_kernels_launch(struct ddpi_kernels *kernels, const struct ddpi_reduction *work,
                               ddpi_cu_stream stream, struct ddp_error *err) DDP_MUST_CHECK;

/* Enqueue the copy of @len bytes, between the device and pinned memory at the address that the
 * device has for it. Uses as few multiprocessors as a bus needs. One thread at a time. Errors are
 * those of ddpi_kernels_load(). */
ddp_status ddpi_kernels_copy(struct ddpi_kernels *kernels, ddpi_cu_deviceptr to,
                             ddpi_cu_deviceptr from, size_t len, ddpi_cu_stream stream,
                             struct ddp_error *err) DDP_MUST_CHECK;

/* Whether a kernel can multiply elements of @dtype that begin at @elements. */
bool ddpi_kernels_can_scale(ddp_dtype dtype, const void *elements);

/* Enqueue the product of @count elements, which a kernel can multiply, and @factor, in place. One
 * thread at a time. Errors are those of ddpi_kernels_load(). */
ddp_status ddpi_kernels_scale(struct ddpi_kernels *kernels, void *elements, size_t count,
                              ddp_dtype dtype, double factor, ddpi_cu_stream stream,
                              struct ddp_error *err) DDP_MUST_CHECK;

/* Enqueue ddpi_cast(), with device addresses. One thread at a time.
 *
 * DDP_E_INVALID: a buffer is not aligned to its elements, or one of the types cannot be cast;
 * nothing was enqueued. Otherwise as ddpi_kernels_load(). */
ddp_status ddpi_kernels_cast(struct ddpi_kernels *kernels, void *out, ddp_dtype to, const void *in,
                             ddp_dtype from, size_t count, ddpi_cu_stream stream,
                             struct ddp_error *err) DDP_MUST_CHECK;

/* How @work is divided: the kernel's parameter, and the number of blocks of DDPI_KERNEL_THREADS.
 * Pure. */
struct ddpi_kernel_plan {
    struct ddpi_kernel_work work;
    uint32_t blocks;
};

struct ddpi_kernel_plan ddpi_kernel_plan(const struct ddpi_reduction *work,
                                         uint32_t multiprocessors);

#endif
