/*
 * carry_out.c - operations that all ranks want. Runs in the object's thread. Owns nothing for
 * longer than a call.
 */
#include "tensors.h"

#include "clock.h"
#include "error.h"
#include "gradient_memory.h"
#include "mem.h"

#include <inttypes.h>
#include <string.h>

/* NULL: this rank does not want it, as it has joined, or is not in the set. */
static struct ddp_tensor *own_tensor(struct ddp_tensors *tensors,
                                     const struct ddpi_tensor_request *request)
{
    pthread_mutex_lock(&tensors->lock);
    struct ddp_tensor *tensor = ddpi_name_table_find(&tensors->names, request->set, request->name);
    pthread_mutex_unlock(&tensors->lock);
    return tensor;
}

static ddp_comm *comm_of(const struct ddp_tensors *tensors,
                         const struct ddpi_tensor_request *request)
{
    return tensors->comms[request->set == DDPI_SET_INTERNAL ? 0 : request->set];
}

/* ---- all_reduce ---- */

/* What all_reduce multiplies by at the end. */
static double last_factor(const struct ddp_tensors *tensors,
                          const struct ddpi_tensor_request *request)
{
    if (request->op != DDP_AVERAGE)
        return request->postscale;
    return request->postscale / ddp_comm_world_size(comm_of(tensors, request));
}

/* The buffers of this rank, multiplied; zeros at @zeros where it has joined. */
static ddp_status fill_buffers(const struct ddp_tensors *tensors, struct ddp_tensor *const *own,
                               const struct ddpi_tensor_response *const *batch, size_t count,
                               uint8_t *zeros, struct ddp_buffer *buffers, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        const struct ddpi_tensor_request *request = &batch[i]->request;
        buffers[i] = (struct ddp_buffer){zeros, zeros, request->count};
        if (own[i] == NULL) {
            zeros += ddpi_tensor_bytes(request);
            continue;
        }
        buffers[i] = (struct ddp_buffer){own[i]->send, own[i]->recv, request->count};
        if (request->prescale == 1)
            continue;
        status =
            ddpi_gradients_scale(ddpi_tensor_memory(tensors, request->on_gpu), own[i]->recv,
                                 own[i]->send, request->count, request->dtype, request->prescale,
                                 ddpi_tensor_stream(tensors, request->on_gpu), err);
        buffers[i].send = own[i]->recv;
    }
    return status;
}

/* Of all ranks that have joined; SIZE_MAX is refused by the allocation. */
static size_t bytes_of_zeros(struct ddp_tensor *const *own,
                             const struct ddpi_tensor_response *const *batch, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (own[i] == NULL &&
            __builtin_add_overflow(bytes, ddpi_tensor_bytes(&batch[i]->request), &bytes))
            return SIZE_MAX;
    return bytes;
}

/* NULL if this rank needs none. */
static ddp_status alloc_zeros(const struct ddp_tensors *tensors,
                              struct ddpi_gradient_memory *memory, size_t bytes, void **ret_zeros,
                              struct ddp_error *err)
{
    *ret_zeros = NULL;
    if (bytes == 0)
        return DDP_OK;
    ddp_status status = ddpi_gradients_alloc(memory, bytes, ret_zeros, err);
    if (status == DDP_OK && memory != NULL)
        status = ddpi_gradients_zero(memory, *ret_zeros, bytes, tensors->stream, err);
    return status;
}

static ddp_status reduce_buffers(const struct ddp_tensors *tensors, ddp_comm *comm,
                                 const struct ddpi_tensor_request *first,
                                 struct ddp_tensor *const *own, const struct ddp_buffer *buffers,
                                 size_t count, struct ddp_error *err)
{
    struct ddpi_gradient_memory *memory = ddpi_tensor_memory(tensors, first->on_gpu);
    void *stream = ddpi_tensor_stream(tensors, first->on_gpu);
    double factor = last_factor(tensors, first);
    ddp_status status =
        ddp_all_reduce_many(comm, buffers, count, first->dtype,
                            first->op == DDP_AVERAGE ? DDP_SUM : first->op, stream, err);
    for (size_t i = 0; status == DDP_OK && factor != 1 && i < count; i++)
        if (own[i] != NULL)
            status = ddpi_gradients_scale(memory, own[i]->recv, own[i]->recv, own[i]->request.count,
                                          first->dtype, factor, stream, err);
    return status;
}

static ddp_status all_reduce(struct ddp_tensors *tensors,
                             const struct ddpi_tensor_response *const *batch,
                             struct ddp_tensor *const *own, size_t count, struct ddp_error *err)
{
    const struct ddpi_tensor_request *first = &batch[0]->request;
    struct ddpi_gradient_memory *memory = ddpi_tensor_memory(tensors, first->on_gpu);
    ddp_comm *comm = comm_of(tensors, first);
    struct ddp_buffer *buffers = ddpi_calloc(count, sizeof *buffers);
    void *zeros;
    if (buffers == NULL)
        return ddpi_error_nomem(err, count * sizeof *buffers);
    ddp_status status =
        alloc_zeros(tensors, memory, bytes_of_zeros(own, batch, count), &zeros, err);
    if (status == DDP_OK)
        status = fill_buffers(tensors, own, batch, count, zeros, buffers, err);
    if (status == DDP_OK)
        status = reduce_buffers(tensors, comm, first, own, buffers, count, err);
    ddp_status settled =
        ddpi_tensors_settle(tensors, comm, first->on_gpu, status == DDP_OK ? err : NULL);
    ddpi_gradients_free(memory, zeros);
    ddpi_free(buffers);
    return status == DDP_OK ? settled : status;
}

/* ---- one tensor ---- */

static ddp_status all_gather(struct ddp_tensors *tensors, struct ddp_tensor *own,
                             struct ddp_error *err)
{
    const struct ddpi_tensor_request *request = &own->request;
    return ddp_all_gather(comm_of(tensors, request), own->send, own->recv, request->count,
                          request->dtype, ddpi_tensor_stream(tensors, request->on_gpu), err);
}

static ddp_status all_to_all(struct ddp_tensors *tensors, struct ddp_tensor *own,
                             struct ddp_error *err)
{
    const struct ddpi_tensor_request *request = &own->request;
    return ddp_all_to_all(comm_of(tensors, request), own->send, own->recv, request->count,
                          request->dtype, ddpi_tensor_stream(tensors, request->on_gpu), err);
}

static ddp_status broadcast(struct ddp_tensors *tensors, struct ddp_tensor *own,
                            struct ddp_error *err)
{
    const struct ddpi_tensor_request *request = &own->request;
    const struct ddpi_process_set *set = &tensors->negotiation.sets[request->set];
    uint32_t root = 0;
    for (uint32_t rank = 0; rank < request->root; rank++)
        root += set->has[rank];
    return ddp_broadcast(comm_of(tensors, request), own->recv, request->count, request->dtype, root,
                         ddpi_tensor_stream(tensors, request->on_gpu), err);
}

static ddp_status join(struct ddp_tensors *tensors, struct ddp_tensor *own, struct ddp_error *err)
{
    (void)tensors, (void)own, (void)err;
    return DDP_OK; /* its result is in the response */
}

/* ---- process sets ---- */

/* A set's communicator, once all ranks have shown that they mean the same ranks. */
static ddp_status make_set(struct ddp_tensors *tensors, const uint8_t *has, struct ddp_error *err)
{
    uint32_t number = tensors->negotiation.nsets;
    ddp_comm **comms = ddpi_realloc(tensors->comms, (size_t)number + 1, sizeof(ddp_comm *));
    if (comms == NULL)
        return ddpi_error_nomem(err, (number + 1) * sizeof(ddp_comm *));
    tensors->comms = comms;
    ddp_status status =
        ddp_comm_split(comms[0], has[tensors->rank] ? 0 : DDP_NO_COLOR, 0, &comms[number], err);
    if (status != DDP_OK)
        return status;
    pthread_mutex_lock(&tensors->lock);
    status = ddpi_negotiation_add_set(&tensors->negotiation, has, err);
    tensors->nsets = tensors->negotiation.nsets;
    pthread_mutex_unlock(&tensors->lock);
    if (status != DDP_OK)
        ddp_comm_destroy(comms[number]);
    return status;
}

static ddp_status add_set(struct ddp_tensors *tensors, struct ddp_tensor *own,
                          struct ddp_error *err)
{
    size_t size = tensors->world_size;
    uint8_t *all = ddpi_calloc(size, size);
    if (all == NULL)
        return ddpi_error_nomem(err, size * size);
    ddp_status status =
        ddp_all_gather(tensors->comms[0], own->has, all, size, DDP_UINT8, NULL, err);
    for (uint32_t rank = 1; status == DDP_OK && rank < size; rank++)
        if (memcmp(all, all + rank * size, size) != 0) {
            ddpi_error_set(&own->reason, DDP_E_MISMATCH,
                           "process set: rank %" PRIu32 " passed other ranks than rank 0: pass "
                           "the same list on all ranks",
                           rank);
            own->status = DDP_E_MISMATCH;
            break;
        }
    own->number = tensors->negotiation.nsets;
    if (status == DDP_OK && own->status == DDP_OK)
        status = make_set(tensors, own->has, err);
    ddpi_free(all);
    return status;
}

static ddp_status (*const singles[DDPI_TENSOR_KINDS])(struct ddp_tensors *tensors,
                                                      struct ddp_tensor *own,
                                                      struct ddp_error *err) = {
    [DDPI_TENSOR_ALL_GATHER] = all_gather, [DDPI_TENSOR_BROADCAST] = broadcast,
    [DDPI_TENSOR_ALL_TO_ALL] = all_to_all, [DDPI_TENSOR_JOIN] = join,
    [DDPI_TENSOR_ADD_SET] = add_set,
};

static ddp_status single(struct ddp_tensors *tensors, struct ddp_tensor *own, struct ddp_error *err)
{
    const struct ddpi_tensor_request *request = &own->request;
    ddp_status status = singles[request->kind](tensors, own, err);
    return status == DDP_OK && request->kind < DDPI_TENSOR_JOIN
               ? ddpi_tensors_settle(tensors, comm_of(tensors, request), request->on_gpu, err)
               : status;
}

/* ---- batches ---- */

/* Horovod's names of events. */
static void note_times(struct ddp_tensors *tensors, const struct ddp_tensor *own, uint64_t begin_us)
{
    static const char *const negotiate[] = {
        [DDPI_TENSOR_ALL_REDUCE] = "NEGOTIATE_ALLREDUCE",
        [DDPI_TENSOR_ALL_GATHER] = "NEGOTIATE_ALLGATHER",
        [DDPI_TENSOR_BROADCAST] = "NEGOTIATE_BROADCAST",
        [DDPI_TENSOR_ALL_TO_ALL] = "NEGOTIATE_ALLTOALL",
        [DDPI_TENSOR_UNEVEN_GATHER] = "NEGOTIATE_ALLGATHER",
    };
    const struct ddpi_tensor_request *request = &own->request;
    if (request->kind >= DDPI_TENSOR_JOIN)
        return;
    const char *name = negotiate[request->kind];
    ddpi_timeline_event(&tensors->timeline, request->set, request->name, name, own->enqueued_us,
                        begin_us);
    ddpi_timeline_event(&tensors->timeline, request->set, request->name,
                        name + strlen("NEGOTIATE_"), begin_us, ddpi_monotonic_us());
}

static void finish_batch(struct ddp_tensors *tensors,
                         const struct ddpi_tensor_response *const *batch,
                         struct ddp_tensor *const *own, size_t count, uint64_t begin_us)
{
    for (size_t i = 0; i < count; i++) {
        if (own[i] == NULL)
            continue;
        note_times(tensors, own[i], begin_us);
        if (batch[i]->request.kind == DDPI_TENSOR_JOIN)
            own[i]->number = batch[i]->last_joined;
        if (batch[i]->failed)
            ddpi_tensor_finish(own[i], batch[i]->reason.status, &batch[i]->reason);
        else
            ddpi_tensor_finish(own[i], own[i]->status, &own[i]->reason);
    }
}

static void count_batch(struct ddp_tensors *tensors,
                        const struct ddpi_tensor_response *const *batch, size_t count,
                        uint64_t operations)
{
    pthread_mutex_lock(&tensors->lock);
    tensors->stats.operations += operations;
    tensors->stats.tensors += count;
    for (size_t i = 0; i < count; i++)
        tensors->stats.remembered += batch[i]->from_cache;
    pthread_mutex_unlock(&tensors->lock);
}

static ddp_status run_batch(struct ddp_tensors *tensors,
                            const struct ddpi_tensor_response *const *batch,
                            struct ddp_tensor *const *own, size_t count, struct ddp_error *err)
{
    const struct ddpi_tensor_request *first = &batch[0]->request;
    uint64_t operations = 1;
    ddp_status status = DDP_OK;
    if (batch[0]->failed || comm_of(tensors, first) == NULL)
        return DDP_OK;
    if (first->on_gpu)
        status = ddpi_gradient_memory_use(tensors->memory, err);
    if (status == DDP_OK)
        status = ddpi_tensors_await(tensors, own, count, err);
    if (status != DDP_OK)
        return status;
    if (first->kind == DDPI_TENSOR_ALL_REDUCE)
        status = all_reduce(tensors, batch, own, count, err);
    else if (first->kind == DDPI_TENSOR_UNEVEN_GATHER)
        status = ddpi_uneven_gather(tensors, comm_of(tensors, first), batch, own, count,
                                    &operations, err);
    else if (own[0] != NULL)
        status = single(tensors, own[0], err);
    if (first->set != DDPI_SET_INTERNAL)
        count_batch(tensors, batch, count, operations);
    return status;
}

ddp_status ddpi_tensors_carry_out(struct ddp_tensors *tensors,
                                  const struct ddpi_tensor_response *const *batch, size_t count,
                                  struct ddp_error *err)
{
    struct ddp_tensor **own = ddpi_calloc(count, sizeof(struct ddp_tensor *));
    uint64_t begin_us = ddpi_monotonic_us();
    if (own == NULL)
        return ddpi_error_nomem(err, count * sizeof(struct ddp_tensor *));
    for (size_t i = 0; i < count; i++)
        own[i] = own_tensor(tensors, &batch[i]->request);
    ddp_status status = run_batch(tensors, batch, own, count, err);
    if (status == DDP_OK)
        finish_batch(tensors, batch, own, count, begin_us);
    else
        ddpi_error_wrap(err, status, "tensor \"%s\"", batch[0]->request.name);
    ddpi_free(own);
    return status;
}
