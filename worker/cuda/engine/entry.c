/*
 * entry.c - which calls are on memory of a GPU, and whether they can be: the checks before anything
 * is enqueued. Owns nothing. A call that is refused leaves nothing behind; one that others wait for
 * and that cannot be enqueued makes the communicator fail.
 */
#include "device_impl.h"

#include "error.h"
#include "peer_message.h"
#include "pointer.h"
#include "reduce.h"

static ddp_status mixed(struct ddp_error *err, bool send_on_device)
{
    return ddpi_error_set(err, DDP_E_INVALID,
                          "the send buffer is memory of the %s, the receive buffer of the %s; both "
                          "must be of one kind",
                          send_on_device ? "GPU" : "host", send_on_device ? "host" : "GPU");
}

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

/* Who said for which GPU the communicator is means that one. */
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

static ddp_status find_places(const struct ddpi_cuda *cuda, const struct ddpi_job *job,
                              struct ddpi_pointer *send, struct ddpi_pointer *recv,
                              struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (job->send != NULL)
        status = ddpi_pointer_look(cuda, job->send, "the send buffer", send, err);
    if (status == DDP_OK && job->recv != NULL)
        status = ddpi_pointer_look(cuda, job->recv, "the receive buffer", recv, err);
    if (status == DDP_OK && job->send != NULL && job->recv != NULL && send->device != recv->device)
        status = mixed(err, send->device);
    return status;
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

/* The first buffers say in which context the communicator works. Virtual memory belongs to none:
 * then it is the caller's current one. */
static ddp_status take_context(struct ddpi_device *device, const struct ddpi_pointer *buffer,
                               struct ddp_error *err)
{
    ddp_status status = check_ordinal(device, "the buffers are", buffer->ordinal, err);
    if (status != DDP_OK)
        return status;
    ddpi_cu_context context = buffer->context;
    if (context == NULL)
        (void)device->cuda.ctx_get_current(&context);
    if (context == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no CUDA context is current in this thread; call cudaSetDevice(%d) "
                              "or cuCtxSetCurrent() first",
                              buffer->ordinal);
    device->context = context;
    device->ordinal = buffer->ordinal;
    return DDP_OK;
}

static bool is_ours(const struct ddpi_device *device, const struct ddpi_pointer *buffer)
{
    return buffer->ordinal == device->ordinal &&
           (buffer->context == NULL || buffer->context == device->context);
}

/* The kernels move whole elements; the host does not mind. */
static ddp_status check_alignment(const struct ddpi_job *job, const void *address, const char *what,
                                  struct ddp_error *err)
{
    if ((uintptr_t)address % job->element_size == 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s at %p is on a GPU, but not aligned to its elements of %zu bytes (%s)",
                          what, address, job->element_size, ddp_dtype_name(job->call.dtype));
}

static ddp_status take_places(struct ddpi_device *device, struct ddpi_errand *errand,
                              const struct ddpi_pointer *send, const struct ddpi_pointer *recv,
                              struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (!device->equipped) /* of calls that were refused nothing stays */
        status = take_context(device, send->device ? send : recv, err);
    if (status != DDP_OK)
        return status;
    if (send->device && !is_ours(device, send))
        return wrong_device(device, "the send buffer", send->ordinal, err);
    if (recv->device && !is_ours(device, recv))
        return wrong_device(device, "the receive buffer", recv->ordinal, err);
    errand->send_allocation = send->buffer;
    errand->recv_allocation = recv->buffer;
    status = check_alignment(&errand->job, errand->job.send, "the send buffer", err);
    if (status == DDP_OK)
        status = check_alignment(&errand->job, errand->job.recv, "the receive buffer", err);
    return status;
}

/* Nobody else is there: the stream itself does it. */
static ddp_status run_alone(const struct ddpi_device *device, const struct ddpi_job *job,
                            ddpi_cu_stream stream, struct ddp_error *err)
{
    ddpi_cu_result result = DDPI_CU_SUCCESS;
    if (job->send != job->recv)
        result = device->cuda.memcpy_async((uintptr_t)job->recv, (uintptr_t)job->send,
                                           job->count * job->element_size, stream);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "copy");
    device->comm->operations++;
    return DDP_OK;
}

/* With the context of the communicator current, whatever is current with the caller, and while
 * other threads may capture, which is no business of this one. */
static ddp_status submit_in_context(struct ddpi_device *device, struct ddpi_errand *errand,
                                    ddpi_cu_stream stream, struct ddp_error *err)
{
    ddpi_cu_result result = device->cuda.ctx_push_current(device->context);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "use the context of the buffers");
    unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
    ddp_status status = check_stream(device, stream, err);
    if (status == DDP_OK && device->comm->world_size == 1)
        status = run_alone(device, &errand->job, stream, err);
    else if (status == DDP_OK)
        status = ddpi_device_submit(device, errand, stream, err);
    (void)ddpi_device_capture_mode(device, mode);
    (void)device->cuda.ctx_pop_current(NULL);
    return status;
}

/* Leaves the device as it was if it cannot be the one of @context. */
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
    device->ordinal = ordinal;
    device->context = context;
    return DDP_OK;
}

/* A barrier has no buffers: its context is that of the stream. */
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
                              "the stream is not of the context in which this communicator works");
    return DDP_OK;
}

static bool has_failed(struct ddpi_device *device)
{
    return !ddpi_device_busy(device) &&
           (device->comm->failed != DDP_OK || ddpi_comm_check_abort(device->comm) != DDP_OK);
}

static ddp_status take(struct ddpi_device *device, const struct ddpi_job *job,
                       ddpi_cu_stream stream, bool *ret_taken, struct ddp_error *err)
{
    struct ddpi_errand errand = {.job = *job};
    struct ddpi_pointer send = {0}, recv = {0};
    bool bare = job->call.operation == DDPI_BARRIER; /* it has no buffers */
    if (!bare && job->count == 0) {
        ddpi_device_drain(device); /* the host does nothing as well as a GPU */
        return DDP_OK;
    }
    ddp_status status = bare ? DDP_OK : find_places(&device->cuda, job, &send, &recv, err);
    if (status != DDP_OK)
        return status;
    if (bare ? stream == NULL : !send.device && !recv.device) {
        ddpi_device_drain(device);
        return DDP_OK;
    }
    status =
        bare ? take_stream(device, stream, err) : take_places(device, &errand, &send, &recv, err);
    if (status != DDP_OK)
        return status;
    errand.job.call.on_device = true;
    if (ddpi_is_message(job)) {
        errand.job.call.seq = ddpi_p2p_next(device->comm, &job->call);
    } else {
        errand.job.call.seq = device->comm->seq;
        errand.job.call.algorithm = device->comm->algorithm;
    }
    *ret_taken = true;
    return submit_in_context(device, &errand, stream, err);
}

/* Give the communicator its device part if its process has a driver. One that does not start is
 * none: nobody has memory of it. */
static ddp_status find_driver(struct ddp_comm *comm, struct ddp_error *err)
{
    if (!ddpi_cuda_in_process(&comm->cuda_watch))
        return DDP_OK;
    ddp_status status = ddpi_device_create(comm);
    if (status == DDP_E_NOMEM) {
        (void)ddpi_comm_fail(comm, NULL, status, "rank %u: no memory for the use of a GPU",
                             comm->rank);
        return ddpi_error_set(err, comm->failed, "%s", comm->cause);
    }
    comm->cuda_watch.found = status == DDP_OK;
    return DDP_OK;
}

/* Unless the call itself is refused, others wait for this rank: have them fail, too, but only after
 * what was enqueued before. */
ddp_status ddpi_device_take(struct ddp_comm *comm, const struct ddpi_job *job, void *stream,
                            bool *ret_taken, struct ddp_error *err)
{
    *ret_taken = false;
    ddp_status status = comm->gpu != NULL ? DDP_OK : find_driver(comm, err);
    if (status != DDP_OK || comm->gpu == NULL)
        return status;
    struct ddp_error cause;
    if (!has_failed(comm->gpu)) {
        status = take(comm->gpu, job, stream, ret_taken, &cause);
        if (status == DDP_OK)
            return DDP_OK;
        if (status == DDP_E_INVALID)
            return ddpi_error_set(err, status, "%s", cause.msg);
        ddpi_device_drain(comm->gpu);
        (void)ddpi_device_fail(comm->gpu, status, &cause);
    }
    return ddpi_error_set(err, comm->failed, "%s", comm->cause);
}
