/*
 * gradient_memory.h - where gradients lie, and the simple steps on them: zeros, copies, products,
 * casts.
 *
 * A handle is memory of a GPU, in one context; NULL is host memory. Steps are enqueued on a stream
 * of the GPU, and are done at once on host memory, which has no stream. So callers have one way for
 * both. Steps of one handle are one thread's at a time; any thread may allocate and free.
 */
#ifndef DDPI_GRADIENT_MEMORY_H
#define DDPI_GRADIENT_MEMORY_H

#include <ddprun/comm_types.h>
#include <stddef.h>

struct ddpi_gradient_memory;

/* The memory of a GPU that has @address; @what names it in sentences. Not blocking, but the driver
 * may start. DDP_E_INVALID: @address is host memory, or no memory that ranks can share.
 * DDP_E_UNSUPPORTED: there is no driver. */
ddp_status ddpi_gradient_memory_open(const void *address, const char *what,
                                     struct ddpi_gradient_memory **ret_memory,
                                     struct ddp_error *err) DDP_MUST_CHECK;

/* Nothing that was enqueued may be left. NULL is allowed. */
void ddpi_gradient_memory_close(struct ddpi_gradient_memory *memory);

/* Load the kernels, so that ddpi_gradients_scale() need not. The driver may wait for all work of
 * the context. DDP_E_UNSUPPORTED: the library was built without kernels. */
ddp_status ddpi_gradient_memory_load(struct ddpi_gradient_memory *memory,
                                     struct ddp_error *err) DDP_MUST_CHECK;

/* Whether @address is memory of the same GPU, aligned to elements of @dtype, and @stream can be
 * waited for. Any thread. DDP_E_INVALID: the sentence begins with @what. */
ddp_status ddpi_gradient_memory_check(const struct ddpi_gradient_memory *memory,
                                      const void *address, ddp_dtype dtype, const char *what,
                                      void *stream, struct ddp_error *err) DDP_MUST_CHECK;

/* A stream that waits for no other one. It is destroyed before the handle is closed, when nothing
 * is left on it; NULL is allowed. */
ddp_status ddpi_gradient_stream_create(const struct ddpi_gradient_memory *memory, void **ret_stream,
                                       struct ddp_error *err) DDP_MUST_CHECK;
void ddpi_gradient_stream_destroy(const struct ddpi_gradient_memory *memory, void *stream);

/* Make the context of the memory current in the calling thread, one of the library's, for good. */
ddp_status ddpi_gradient_memory_use(const struct ddpi_gradient_memory *memory,
                                    struct ddp_error *err) DDP_MUST_CHECK;

/* @bytes of any content; free them with ddpi_gradients_free(). The driver may wait for all work of
 * the context. DDP_E_NOMEM: there are not as many. */
ddp_status ddpi_gradients_alloc(struct ddpi_gradient_memory *memory, size_t bytes,
                                void **ret_address, struct ddp_error *err) DDP_MUST_CHECK;
void ddpi_gradients_free(struct ddpi_gradient_memory *memory, void *address);

/* DDP_E_CUDA: the driver refused, perhaps for a failure of earlier work. */
ddp_status ddpi_gradients_zero(struct ddpi_gradient_memory *memory, void *to, size_t bytes,
                               void *stream, struct ddp_error *err) DDP_MUST_CHECK;
ddp_status ddpi_gradients_copy(struct ddpi_gradient_memory *memory, void *to, const void *from,
                               size_t bytes, void *stream, struct ddp_error *err) DDP_MUST_CHECK;

/* to[i] = from[i] * @factor, as ddpi_tensor_scale() does; @to may be @from. What no kernel can
 * multiply (integers, float8, elements that are not aligned) goes through host memory, and this
 * waits for @stream. */
ddp_status ddpi_gradients_scale(struct ddpi_gradient_memory *memory, void *to, const void *from,
                                size_t count, ddp_dtype dtype, double factor, void *stream,
                                struct ddp_error *err) DDP_MUST_CHECK;

/* Write @count elements of type @from as those of type @to, as ddpi_cast() does. DDP_E_INVALID:
 * memory of a GPU is not aligned to its elements. */
ddp_status ddpi_gradients_cast(struct ddpi_gradient_memory *memory, void *out, ddp_dtype to,
                               const void *in, ddp_dtype from, size_t count, void *stream,
                               struct ddp_error *err) DDP_MUST_CHECK;

/* Block until all that was enqueued on @stream is done. */
ddp_status ddpi_gradients_await(struct ddpi_gradient_memory *memory, void *stream,
                                struct ddp_error *err) DDP_MUST_CHECK;

#endif
