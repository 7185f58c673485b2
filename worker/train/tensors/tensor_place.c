/*
 * tensor_place.c - see tensors.h. Owns the object's handle of a GPU's memory, and its stream
 * there.
 */
#include "tensors.h"

#include "error.h"
#include "gradient_memory.h"
#include "submit.h"

/* ---- looking at buffers ---- */

static ddp_status take_gpu(struct ddp_tensors *tensors, const void *address, const char *what,
                           struct ddp_error *err)
{
    struct ddpi_gradient_memory *memory;
    ddp_status status = ddpi_gradient_memory_open(address, what, &memory, err);
    if (status == DDP_OK)
        status = ddpi_gradient_memory_load(memory, err);
    if (status == DDP_OK)
        status = ddpi_gradient_stream_create(memory, &tensors->stream, err);
    if (status == DDP_OK)
        tensors->memory = memory;
    else
        ddpi_gradient_memory_close(memory);
    return status;
}

static ddp_status look(struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                       const void *address, const char *what, bool *ret_on_gpu,
                       struct ddp_error *err)
{
    const struct ddpi_memory_type *type = NULL;
    *ret_on_gpu = false;
    ddp_status status = ddpi_submit_find_type(tensors->comm, address, what, &type, err);
    if (status != DDP_OK || type->library == NULL)
        return status;
    if (tensors->memory == NULL)
        status = take_gpu(tensors, address, what, err);
    if (status == DDP_OK)
        status =
            ddpi_gradient_memory_check(tensors->memory, address, op->dtype, what, op->stream, err);
    *ret_on_gpu = true;
    return status;
}

static const char *place_name(bool on_gpu)
{
    return on_gpu ? "memory of a GPU" : "host memory";
}

ddp_status ddpi_tensor_place(struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                             bool *ret_on_gpu, struct ddp_error *err)
{
    bool sends = op->kind != DDP_KIND_BROADCAST, send_on_gpu = false, recv_on_gpu = false;
    ddp_status status = DDP_OK;
    *ret_on_gpu = false;
    if (sends && op->send != NULL && (op->count > 0 || op->uneven))
        status = look(tensors, op, op->send, "the send buffer", &send_on_gpu, err);
    recv_on_gpu = send_on_gpu;
    if (status == DDP_OK && op->count > 0 && !op->uneven && (!sends || op->recv != op->send))
        status = look(tensors, op, op->recv, "the receive buffer", &recv_on_gpu, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "tensor \"%s\"", op->name);
    *ret_on_gpu = recv_on_gpu;
    if (!sends || send_on_gpu == recv_on_gpu)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "tensor \"%s\": the send buffer at %p is %s, and the receive buffer at "
                          "%p %s: pass two of one kind",
                          op->name, op->send, place_name(send_on_gpu), op->recv,
                          place_name(recv_on_gpu));
}

/* ---- the thread ---- */

struct ddpi_gradient_memory *ddpi_tensor_memory(const struct ddp_tensors *tensors, bool on_gpu)
{
    return on_gpu ? tensors->memory : NULL;
}

void *ddpi_tensor_stream(const struct ddp_tensors *tensors, bool on_gpu)
{
    return on_gpu ? tensors->stream : NULL;
}

ddp_status ddpi_tensors_await(const struct ddp_tensors *tensors, struct ddp_tensor *const *own,
                              size_t count, struct ddp_error *err)
{
    const struct ddp_tensor *before = NULL; /* mostly all have one stream */
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        if (own[i] == NULL || !own[i]->on_gpu)
            continue;
        if (before == NULL || before->stream != own[i]->stream)
            status = ddpi_gradients_await(tensors->memory, own[i]->stream, err);
        before = own[i];
    }
    return status;
}

ddp_status ddpi_tensors_settle(const struct ddp_tensors *tensors, ddp_comm *comm, bool on_gpu,
                               struct ddp_error *err)
{
    if (!on_gpu)
        return DDP_OK;
    ddp_status status = ddpi_gradients_await(tensors->memory, tensors->stream, err);
    return status == DDP_OK ? ddp_comm_check(comm, err) : status;
}

void ddpi_tensors_leave_gpu(struct ddp_tensors *tensors)
{
    if (tensors->memory != NULL)
        ddpi_gradient_stream_destroy(tensors->memory, tensors->stream);
    ddpi_gradient_memory_close(tensors->memory);
}
