/*
 * cuda_memory.c - the table of functions of the memory type, and the checks before a call is
 * enqueued. Owns nothing.
 */
#include "cuda_memory.h"

#include "device.h"
#include "error.h"
#include "list.h"
#include "mem.h"
#include "pointer.h"
#include "runs.h"
#include "steps.h"

#include <string.h>

static ddp_status wrong_device(const struct ddpi_device *device, const char *what, int ordinal,
                               struct ddp_error *err)
{
    if (ordinal == device->ordinal)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s is of another context of GPU %d than the one in which this "
                              "communicator has begun to work; one communicator uses one GPU in "
                              "one context",
                              what, ordinal);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s is on GPU %d, but this communicator has begun to work on GPU %d; one "
                          "communicator uses one GPU in one context",
                          what, ordinal, device->ordinal);
}

/* A communicator that was made for one GPU works on that GPU only. */
static ddp_status check_ordinal(const struct ddpi_device *device, const char *what, int ordinal,
                                struct ddp_error *err)
{
    int wanted = device->comm->device;
    if (wanted < 0 || ordinal == wanted)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s on GPU %d, but the communicator of rank %u was made for GPU %d", what,
                          ordinal, device->comm->rank, wanted);
}

static ddp_status check_stream(const struct ddpi_device *device, ddpi_cu_stream stream,
                               struct ddp_error *err)
{
    unsigned capturing = DDPI_CU_STREAM_CAPTURE_STATUS_NONE;
    ddpi_cu_result result = device->cuda.stream_is_capturing(stream, &capturing);
    if (result == DDPI_CU_ERROR_STREAM_CAPTURE_IMPLICIT)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "another stream is being captured into a graph, in which the default "
                              "stream cannot be used; pass a stream of your own");
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "look at the stream");
    if (capturing != DDPI_CU_STREAM_CAPTURE_STATUS_NONE)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the stream is being captured into a graph; a collective talks to "
                              "other ranks each time and cannot be part of one");
    return DDP_OK;
}

/* The first buffers decide in which context the communicator works. */
static ddp_status take_context(struct ddpi_device *device, const struct ddpi_buffer *buffer,
                               struct ddp_error *err)
{
    ddp_status status = check_ordinal(device, "the buffers are", buffer->ordinal, err);
    if (status != DDP_OK)
        return status;
    ddpi_cu_context context = buffer->context;
    bool retained = false;
    if (context == NULL)
        status =
            ddpi_pointer_find_context(&device->cuda, buffer->ordinal, &context, &retained, err);
    if (status != DDP_OK)
        return status;
    ddpi_device_release_context(device); /* of a call that was refused */
    device->context = context;
    device->retained = retained;
    device->ordinal = buffer->ordinal;
    return DDP_OK;
}

static bool is_in_context(const struct ddpi_device *device, const struct ddpi_buffer *buffer)
{
    return buffer->ordinal == device->ordinal &&
           (buffer->context == NULL || buffer->context == device->context);
}

/* The kernels move whole elements. */
static ddp_status check_alignment(const struct ddpi_task *task, const void *address,
                                  const char *what, struct ddp_error *err)
{
    if ((uintptr_t)address % task->element_size == 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s at %p is on a GPU, but not aligned to its elements of %zu bytes (%s)",
                          what, address, task->element_size, ddp_dtype_name(task->call.dtype));
}

static ddp_status take_buffers(struct ddpi_device *device, const struct ddpi_run *run,
                               struct ddp_error *err)
{
    const struct ddpi_buffer *send = &run->buffers.send, *recv = &run->buffers.recv;
    ddp_status status = DDP_OK;
    if (!device->equipped) /* a call that is refused leaves nothing behind */
        status = take_context(device, send->memory != NULL ? send : recv, err);
    if (status != DDP_OK)
        return status;
    if (send->memory != NULL && !is_in_context(device, send))
        return wrong_device(device, "the send buffer", send->ordinal, err);
    if (recv->memory != NULL && !is_in_context(device, recv))
        return wrong_device(device, "the receive buffer", recv->ordinal, err);
    if (run->task.list != NULL) /* it is copied, whatever its alignment */
        return DDP_OK;
    if (send->memory != NULL)
        status = check_alignment(&run->task, run->task.send, "the send buffer", err);
    if (status == DDP_OK && recv->memory != NULL)
        status = check_alignment(&run->task, run->task.recv, "the receive buffer", err);
    return status;
}

/* In a world of one the stream itself does it, unless there is more to do than to copy. */
static bool is_copy(const struct ddpi_device *device, const struct ddpi_task *task)
{
    return device->comm->world_size == 1 && !ddpi_call_shape(&task->call)->message &&
           !task->call.finite_check &&
           !(ddpi_call_shape(&task->call)->reduces && task->factor != 1);
}

static ddp_status run_in_stream(const struct ddpi_device *device, const struct ddpi_run *run,
                                ddpi_cu_stream stream, struct ddp_error *err)
{
    const struct ddpi_cuda *cuda = &device->cuda;
    struct ddpi_segments segments = ddpi_task_segments(&run->task);
    struct ddpi_copy copy = ddpi_task_own_copy(&run->task, device->comm->rank);
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    ddpi_cu_result result = DDPI_CU_SUCCESS;
    if (copy.len > 0)
        result = cuda->memcpy_async((uintptr_t)copy.to, (uintptr_t)copy.from, copy.len, stream);
    while (run->task.list != NULL && result == DDPI_CU_SUCCESS &&
           ddpi_segments_next(&segments, &spot, SIZE_MAX, &segment))
        if (segment.recv != segment.send)
            result = cuda->memcpy_async((uintptr_t)segment.recv, (uintptr_t)segment.send,
                                        segment.len, stream);
    return result == DDPI_CU_SUCCESS ? DDP_OK : ddpi_cuda_error(&device->cuda, err, result, "copy");
}

/* The caller may free its list before the stream has reached the operation. */
static ddp_status submit_list(struct ddpi_device *device, struct ddpi_run *run,
                              ddpi_cu_stream stream, struct ddp_error *err)
{
    const struct ddp_buffer *list = run->task.list;
    size_t size = run->task.call.buffers * sizeof *list;
    struct ddp_buffer *copy = ddpi_calloc(1, size);
    if (copy == NULL)
        return ddpi_error_nomem(err, size);
    memcpy(copy, list, size);
    run->task.list = copy; /* device_end() frees it */
    ddp_status status = ddpi_device_submit(device, run, stream, err);
    if (status == DDP_OK)
        return DDP_OK;
    run->task.list = list;
    ddpi_free(copy);
    return status;
}

/* With the communicator's context current, and also while other threads capture; restores both. */
static ddp_status submit_in_context(struct ddpi_device *device, struct ddpi_run *run,
                                    ddpi_cu_stream stream, struct ddp_error *err)
{
    ddpi_cu_result result = device->cuda.ctx_push_current(device->context);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "use the context of the buffers");
    unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
    ddp_status status = check_stream(device, stream, err);
    if (status == DDP_OK && is_copy(device, &run->task))
        status = run_in_stream(device, run, stream, err);
    else if (status == DDP_OK && run->task.list != NULL)
        status = submit_list(device, run, stream, err);
    else if (status == DDP_OK)
        status = ddpi_device_submit(device, run, stream, err);
    (void)ddpi_device_capture_mode(device, mode);
    (void)device->cuda.ctx_pop_current(NULL);
    return status;
}

/* Leaves @device unchanged if @context is not allowed. */
static ddp_status take_context_of_stream(struct ddpi_device *device, ddpi_cu_context context,
                                         struct ddp_error *err)
{
    int ordinal;
    ddpi_cu_result result = device->cuda.ctx_push_current(context);
    if (result == DDPI_CU_SUCCESS) {
        result = device->cuda.ctx_get_device(&ordinal);
        (void)device->cuda.ctx_pop_current(NULL);
    }
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "use the context of the stream");
    ddp_status status = check_ordinal(device, "the stream is", ordinal, err);
    if (status != DDP_OK)
        return status;
    ddpi_device_release_context(device);
    device->ordinal = ordinal;
    device->context = context;
    return DDP_OK;
}

/* Without buffers the context is that of the stream: a barrier, or of uneven parts none is this
 * rank's. */
static ddp_status take_stream(struct ddpi_device *device, ddpi_cu_stream stream,
                              struct ddp_error *err)
{
    ddpi_cu_context context;
    ddpi_cu_result result = device->cuda.stream_get_ctx(stream, &context);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "look at the stream");
    if (!device->equipped)
        return take_context_of_stream(device, context, err);
    if (context != device->context)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the stream belongs to another context than this communicator");
    return DDP_OK;
}

/* ---- the table ---- */

/* What a driver that is too old has given out cannot be used, and is no memory of the host. */
static bool is_too_old(const struct ddpi_device *device)
{
    return device->cuda.library == NULL;
}

static struct ddpi_device *device_of(struct ddpi_memory *memory)
{
    return ddpi_container_of(memory, struct ddpi_device, memory);
}

/* A driver that is loaded and not started has given out no memory. To start it takes seconds, and
 * no process that is forked afterwards could use it. */
static bool cuda_is_started(void *symbol)
{
    ddpi_cu_result (*get_current)(ddpi_cu_context * ret_context);
    ddpi_cu_context context;
    memcpy(&get_current, &symbol, sizeof symbol);
    return get_current(&context) != DDPI_CU_ERROR_NOT_INITIALIZED;
}

static ddp_status cuda_open(struct ddp_comm *comm, struct ddpi_memory **ret_memory)
{
    struct ddpi_device *device;
    ddp_status status = ddpi_device_create(comm, &device);
    if (status != DDP_OK)
        return status;
    device->memory.type = &ddpi_cuda_memory;
    *ret_memory = &device->memory;
    return DDP_OK;
}

static ddp_status cuda_look(struct ddpi_memory *memory, const void *address, const char *what,
                            struct ddpi_buffer *ret_buffer, struct ddp_error *err)
{
    const struct ddpi_device *device = device_of(memory);
    struct ddpi_pointer pointer;
    if (is_too_old(device) && ddpi_pointer_readable(address))
        return DDP_OK;
    if (is_too_old(device))
        return ddpi_error_set(err, device->unfit, "%s at %p is not memory of the host: %s", what,
                              address, device->refusal.msg);
    ddp_status status = ddpi_pointer_look(&device->cuda, address, what, &pointer, err);
    if (status == DDP_OK && pointer.device)
        *ret_buffer = (struct ddpi_buffer){
            .memory = memory, .context = pointer.context, .ordinal = pointer.ordinal};
    return status;
}

/* Under the lock of those who enqueue. */
static ddp_status submit(struct ddpi_device *device, struct ddpi_run *run, void *stream,
                         struct ddp_error *err)
{
    bool has_buffers = run->buffers.send.memory != NULL || run->buffers.recv.memory != NULL;
    if (is_too_old(device))
        return ddpi_error_set(err, device->unfit, "%s", device->refusal.msg);
    ddp_status status =
        has_buffers ? take_buffers(device, run, err) : take_stream(device, stream, err);
    if (status != DDP_OK)
        return status;
    run->owner = &device->memory;
    run->task.call.on_device = true;
    if (!ddpi_call_shape(&run->task.call)->message)
        run->task.call.algorithm = device->comm->algorithm;
    return submit_in_context(device, run, stream, err);
}

static ddp_status cuda_submit(struct ddpi_memory *memory, struct ddp_comm *comm,
                              struct ddpi_run *run, void *stream, struct ddp_error *err)
{
    struct ddpi_device *device = device_of(memory);
    bool passes = is_copy(device, &run->task);
    pthread_mutex_lock(&device->submit_lock);
    ddp_status status = submit(device, run, stream, err);
    pthread_mutex_unlock(&device->submit_lock);
    if (status == DDP_OK && passes)
        ddpi_runs_pass(comm, run);
    return status;
}

static void cuda_read_stats(struct ddpi_memory *memory, struct ddp_comm_stats *stats)
{
    ddpi_device_read_stats(device_of(memory), stats);
}

static ddp_status cuda_check(struct ddpi_memory *memory, struct ddp_error *err)
{
    return ddpi_device_check(device_of(memory), err);
}

static void cuda_destroy(struct ddpi_memory *memory)
{
    ddpi_device_destroy(device_of(memory));
}

const struct ddpi_memory_type ddpi_cuda_memory = {.name = "GPU",
                                                  .library = "libcuda.so.1",
                                                  .symbol = "cuCtxGetCurrent",
                                                  .is_started = cuda_is_started,
                                                  .open = cuda_open,
                                                  .look = cuda_look,
                                                  .submit = cuda_submit,
                                                  .enqueues = true,
                                                  .read_stats = cuda_read_stats,
                                                  .check = cuda_check,
                                                  .destroy = cuda_destroy};
