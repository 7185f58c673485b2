/*
 * gradient_memory.c - see gradient_memory.h. Owns a table of the driver and the kernels in the
 * context of the gradients; leaves the current context and the mode of captures as it finds them.
 */
#include "gradient_memory.h"

#include "error.h"
#include "kernel_launch.h"
#include "mem.h"
#include "pointer.h"
#include "reduce.h"
#include "tensor_scale.h"

#include <string.h>

struct ddpi_gradient_memory {
    struct ddpi_cuda cuda;
    ddpi_cu_context context;
    bool retained; /* the primary one, by this */
    int ordinal;   /* of its GPU */
    struct ddpi_kernels kernels;
};

/* ---- the context ---- */

/* Also while other threads capture: nothing here disturbs a capture. */
static ddp_status enter(const struct ddpi_gradient_memory *memory, unsigned *ret_mode,
                        struct ddp_error *err)
{
    ddpi_cu_result result = memory->cuda.ctx_push_current(memory->context);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&memory->cuda, err, result, "use the context of the gradients");
    *ret_mode = DDPI_CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)memory->cuda.thread_exchange_stream_capture_mode(ret_mode);
    return DDP_OK;
}

static void leave(const struct ddpi_gradient_memory *memory, unsigned mode)
{
    (void)memory->cuda.thread_exchange_stream_capture_mode(&mode);
    (void)memory->cuda.ctx_pop_current(NULL);
}

/* ---- life ---- */

static ddp_status find_context(struct ddpi_gradient_memory *memory, const void *address,
                               const char *what, struct ddp_error *err)
{
    struct ddpi_pointer pointer;
    ddp_status status = ddpi_pointer_look(&memory->cuda, address, what, &pointer, err);
    if (status != DDP_OK)
        return status;
    if (!pointer.device)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "%s at %p is host memory: set on_device to 0, or pass memory of a GPU", what, address);
    memory->context = pointer.context;
    memory->ordinal = pointer.ordinal;
    if (memory->context != NULL)
        return DDP_OK;
    return ddpi_pointer_find_context(&memory->cuda, memory->ordinal, &memory->context,
                                     &memory->retained, err);
}

ddp_status ddpi_gradient_memory_open(const void *address, const char *what,
                                     struct ddpi_gradient_memory **ret_memory,
                                     struct ddp_error *err)
{
    struct ddpi_gradient_memory *memory = ddpi_calloc(1, sizeof *memory);
    *ret_memory = NULL;
    if (memory == NULL)
        return ddpi_error_nomem(err, sizeof *memory);
    ddp_status status = ddpi_cuda_init(&memory->cuda, err);
    if (status == DDP_OK)
        status = find_context(memory, address, what, err);
    if (status != DDP_OK) {
        ddpi_cuda_finish(&memory->cuda);
        ddpi_free(memory);
        return status;
    }
    ddpi_kernels_init(&memory->kernels, &memory->cuda);
    *ret_memory = memory;
    return DDP_OK;
}

/* If the context was destroyed, so were the kernels. */
void ddpi_gradient_memory_close(struct ddpi_gradient_memory *memory)
{
    unsigned mode;
    if (memory == NULL)
        return;
    if (enter(memory, &mode, NULL) == DDP_OK) {
        ddpi_kernels_finish(&memory->kernels);
        leave(memory, mode);
    }
    if (memory->retained)
        (void)memory->cuda.device_primary_ctx_release(memory->ordinal);
    ddpi_cuda_finish(&memory->cuda);
    ddpi_free(memory);
}

ddp_status ddpi_gradient_memory_load(struct ddpi_gradient_memory *memory, struct ddp_error *err)
{
    unsigned mode;
    if (memory == NULL)
        return DDP_OK;
    ddp_status status = enter(memory, &mode, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_kernels_load(&memory->kernels, err);
    leave(memory, mode);
    return status;
}

/* ---- what callers pass ---- */

static ddp_status check_address(const struct ddpi_gradient_memory *memory, const void *address,
                                ddp_dtype dtype, const char *what, struct ddp_error *err)
{
    struct ddpi_pointer pointer;
    ddp_status status = ddpi_pointer_look(&memory->cuda, address, what, &pointer, err);
    if (status != DDP_OK)
        return status;
    if (pointer.ordinal != memory->ordinal ||
        (pointer.context != NULL && pointer.context != memory->context))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s at %p is memory of GPU %d, but those before were of GPU %d, in "
                              "one context: use an object for each",
                              what, address, pointer.ordinal, memory->ordinal);
    if ((uintptr_t)address % ddp_dtype_size(dtype) == 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s at %p is on a GPU, but not aligned to its elements of %zu bytes (%s)",
                          what, address, ddp_dtype_size(dtype), ddp_dtype_name(dtype));
}

ddp_status ddpi_gradient_memory_check(const struct ddpi_gradient_memory *memory,
                                      const void *address, ddp_dtype dtype, const char *what,
                                      void *stream, struct ddp_error *err)
{
    unsigned mode, capturing = DDPI_CU_STREAM_CAPTURE_STATUS_NONE;
    ddp_status status = check_address(memory, address, dtype, what, err);
    if (status == DDP_OK)
        status = enter(memory, &mode, err);
    if (status != DDP_OK)
        return status;
    ddpi_cu_result result = memory->cuda.stream_is_capturing(stream, &capturing);
    leave(memory, mode);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&memory->cuda, err, result, "look at the stream of %s", what);
    if (capturing != DDPI_CU_STREAM_CAPTURE_STATUS_NONE)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "the stream of %s is being captured into a graph: nothing can wait for it", what);
    return DDP_OK;
}

ddp_status ddpi_gradient_stream_create(const struct ddpi_gradient_memory *memory, void **ret_stream,
                                       struct ddp_error *err)
{
    unsigned mode;
    ddpi_cu_stream stream = NULL;
    ddp_status status = enter(memory, &mode, err);
    if (status != DDP_OK)
        return status;
    ddpi_cu_result result = memory->cuda.stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING);
    leave(memory, mode);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&memory->cuda, err, result, "make a stream");
    *ret_stream = stream;
    return DDP_OK;
}

void ddpi_gradient_stream_destroy(const struct ddpi_gradient_memory *memory, void *stream)
{
    unsigned mode;
    if (stream == NULL || enter(memory, &mode, NULL) != DDP_OK)
        return;
    (void)memory->cuda.stream_destroy(stream);
    leave(memory, mode);
}

ddp_status ddpi_gradient_memory_use(const struct ddpi_gradient_memory *memory,
                                    struct ddp_error *err)
{
    ddpi_cu_context current = NULL;
    ddpi_cu_result result = memory->cuda.ctx_get_current(&current);
    if (result == DDPI_CU_SUCCESS && current != memory->context)
        result = memory->cuda.ctx_push_current(memory->context);
    return result == DDPI_CU_SUCCESS
               ? DDP_OK
               : ddpi_cuda_error(&memory->cuda, err, result, "use the context of the gradients");
}

/* ---- memory ---- */

ddp_status ddpi_gradients_alloc(struct ddpi_gradient_memory *memory, size_t bytes,
                                void **ret_address, struct ddp_error *err)
{
    ddpi_cu_deviceptr address = 0;
    unsigned mode;
    if (memory == NULL) {
        *ret_address = ddpi_calloc(1, bytes);
        return *ret_address != NULL ? DDP_OK : ddpi_error_nomem(err, bytes);
    }
    *ret_address = NULL;
    ddp_status status = enter(memory, &mode, err);
    if (status != DDP_OK)
        return status;
    ddpi_cu_result result = memory->cuda.mem_alloc(&address, bytes);
    leave(memory, mode);
    *ret_address = (void *)(uintptr_t)address;
    if (result == DDPI_CU_ERROR_OUT_OF_MEMORY)
        return ddpi_error_set(err, DDP_E_NOMEM, "the GPU has no %zu bytes of memory left", bytes);
    return result == DDPI_CU_SUCCESS ? DDP_OK
                                     : ddpi_cuda_error(&memory->cuda, err, result,
                                                       "allocate %zu bytes of GPU memory", bytes);
}

void ddpi_gradients_free(struct ddpi_gradient_memory *memory, void *address)
{
    unsigned mode;
    if (memory == NULL)
        ddpi_free(address);
    else if (address != NULL && enter(memory, &mode, NULL) == DDP_OK) {
        (void)memory->cuda.mem_free((uintptr_t)address);
        leave(memory, mode);
    }
}

/* ---- steps ---- */

/* What is left to do when something was enqueued, or was refused. */
static ddp_status leave_with(const struct ddpi_gradient_memory *memory, unsigned mode,
                             ddpi_cu_result result, const char *tried, struct ddp_error *err)
{
    leave(memory, mode);
    return result == DDPI_CU_SUCCESS ? DDP_OK
                                     : ddpi_cuda_error(&memory->cuda, err, result, "%s", tried);
}

ddp_status ddpi_gradients_zero(struct ddpi_gradient_memory *memory, void *to, size_t bytes,
                               void *stream, struct ddp_error *err)
{
    unsigned mode;
    if (memory == NULL) {
        memset(to, 0, bytes);
        return DDP_OK;
    }
    ddp_status status = enter(memory, &mode, err);
    return status != DDP_OK
               ? status
               : leave_with(memory, mode,
                            memory->cuda.memset_d8_async((uintptr_t)to, 0, bytes, stream),
                            "fill a gradient with zeros", err);
}

ddp_status ddpi_gradients_copy(struct ddpi_gradient_memory *memory, void *to, const void *from,
                               size_t bytes, void *stream, struct ddp_error *err)
{
    unsigned mode;
    if (memory == NULL) {
        memcpy(to, from, bytes);
        return DDP_OK;
    }
    ddp_status status = enter(memory, &mode, err);
    return status != DDP_OK ? status
                            : leave_with(memory, mode,
                                         memory->cuda.memcpy_async((uintptr_t)to, (uintptr_t)from,
                                                                   bytes, stream),
                                         "copy a gradient", err);
}

ddp_status ddpi_gradients_await(struct ddpi_gradient_memory *memory, void *stream,
                                struct ddp_error *err)
{
    unsigned mode;
    if (memory == NULL)
        return DDP_OK;
    ddp_status status = enter(memory, &mode, err);
    return status != DDP_OK ? status
                            : leave_with(memory, mode, memory->cuda.stream_synchronize(stream),
                                         "wait for the stream of a gradient", err);
}

/* ---- products ---- */

static ddpi_cu_result scale_through_host(const struct ddpi_cuda *cuda, void *elements,
                                         void *on_host, size_t count, ddp_dtype dtype,
                                         double factor, ddpi_cu_stream stream)
{
    size_t bytes = count * ddp_dtype_size(dtype);
    ddpi_cu_result result = cuda->memcpy_dtoh_async(on_host, (uintptr_t)elements, bytes, stream);
    if (result == DDPI_CU_SUCCESS)
        result = cuda->stream_synchronize(stream);
    if (result != DDPI_CU_SUCCESS)
        return result;
    ddpi_tensor_scale(on_host, on_host, count, dtype, factor);
    result = cuda->memcpy_htod_async((uintptr_t)elements, on_host, bytes, stream);
    return result == DDPI_CU_SUCCESS ? cuda->stream_synchronize(stream) : result;
}

static ddp_status scale_on_host(const struct ddpi_gradient_memory *memory, void *elements,
                                size_t count, ddp_dtype dtype, double factor, void *stream,
                                struct ddp_error *err)
{
    void *on_host = ddpi_calloc(count, ddp_dtype_size(dtype));
    if (on_host == NULL)
        return ddpi_error_nomem(err, count * ddp_dtype_size(dtype));
    ddpi_cu_result result =
        scale_through_host(&memory->cuda, elements, on_host, count, dtype, factor, stream);
    ddpi_free(on_host);
    return result == DDPI_CU_SUCCESS
               ? DDP_OK
               : ddpi_cuda_error(&memory->cuda, err, result, "multiply a gradient on the host");
}

ddp_status ddpi_gradients_scale(struct ddpi_gradient_memory *memory, void *to, const void *from,
                                size_t count, ddp_dtype dtype, double factor, void *stream,
                                struct ddp_error *err)
{
    unsigned mode;
    if (memory == NULL) {
        ddpi_tensor_scale(to, from, count, dtype, factor);
        return DDP_OK;
    }
    ddp_status status = DDP_OK;
    if (to != from)
        status = ddpi_gradients_copy(memory, to, from, count * ddp_dtype_size(dtype), stream, err);
    if (status == DDP_OK)
        status = enter(memory, &mode, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_kernels_can_scale(dtype, to)
                 ? ddpi_kernels_scale(&memory->kernels, to, count, dtype, factor, stream, err)
                 : scale_on_host(memory, to, count, dtype, factor, stream, err);
    leave(memory, mode);
    return status;
}

/* ---- casts ---- */

ddp_status ddpi_gradients_cast(struct ddpi_gradient_memory *memory, void *out, ddp_dtype to,
                               const void *in, ddp_dtype from, size_t count, void *stream,
                               struct ddp_error *err)
{
    unsigned mode;
    if (memory == NULL) {
        ddpi_cast(out, to, in, from, count);
        return DDP_OK;
    }
    ddp_status status = enter(memory, &mode, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_kernels_cast(&memory->kernels, out, to, in, from, count, stream, err);
    leave(memory, mode);
    return status;
}
