/*
 * uneven_gather.c - all-gathers to which each rank gives a number of elements of its own. Owns
 * nothing for longer than a call; results belong to their tensors.
 *
 *     all ranks: how many elements each gives to each tensor (one all-gather for the batch)
 *     all ranks: the elements of as many tensors as fit into fusion_bytes, as bytes, packed
 *
 * A tensor that is alone in its operation is not packed: it is sent and received where it lies; but
 * what is on a GPU goes through packed host memory, as the engine for GPUs would do it, too. So
 * ranks may have one tensor in different places.
 * What other ranks give is only known by their numbers: sums are checked before memory is taken.
 */
#include "tensors.h"

#include "error.h"
#include "gradient_memory.h"
#include "mem.h"

/* Memory for nothing is memory, too: NULL means that there is none. */
static void *alloc_bytes(size_t bytes)
{
    return ddpi_calloc(bytes > 0 ? bytes : 1, 1);
}

/* ---- what ranks give ---- */

struct gathering {
    const struct ddp_tensors *tensors;
    ddp_comm *comm;
    uint32_t nranks;
    const struct ddpi_tensor_response *const *batch;
    struct ddp_tensor *const *own;
    size_t count;
    uint64_t *given;    /* elements: of rank 0 for each tensor, then of rank 1, ... */
    size_t *part_bytes; /* of each rank in the operation that comes next */
};

static ddp_status exchange_counts(struct gathering *gathering, struct ddp_error *err)
{
    uint64_t *own = ddpi_calloc(gathering->count, sizeof *own);
    if (own == NULL)
        return ddpi_error_nomem(err, gathering->count * sizeof *own);
    for (size_t i = 0; i < gathering->count; i++)
        own[i] = gathering->own[i] != NULL ? gathering->own[i]->count : 0;
    ddp_status status = ddp_all_gather(gathering->comm, own, gathering->given, gathering->count,
                                       DDP_UINT64, NULL, err);
    ddpi_free(own);
    return status;
}

static size_t elements_of(const struct gathering *gathering, uint32_t rank, size_t tensor)
{
    return gathering->given[rank * gathering->count + tensor];
}

static size_t element_size(const struct gathering *gathering, size_t tensor)
{
    return ddp_dtype_size(gathering->batch[tensor]->request.dtype);
}

/* Bytes of all ranks; SIZE_MAX, which no allocation has, if there are more. */
static size_t tensor_bytes(const struct gathering *gathering, size_t tensor)
{
    size_t elements = 0, bytes;
    for (uint32_t rank = 0; rank < gathering->nranks; rank++)
        if (__builtin_add_overflow(elements, elements_of(gathering, rank, tensor), &elements))
            return SIZE_MAX;
    return __builtin_mul_overflow(elements, element_size(gathering, tensor), &bytes) ? SIZE_MAX
                                                                                     : bytes;
}

/* ---- results ---- */

/* Room for what all ranks give to the tensor, and how much each does. */
static ddp_status alloc_result(const struct gathering *gathering, size_t tensor,
                               struct ddp_error *err)
{
    struct ddp_tensor *own = gathering->own[tensor];
    size_t bytes = tensor_bytes(gathering, tensor);
    if (own == NULL)
        return DDP_OK;
    own->counts = ddpi_calloc(gathering->nranks, sizeof *own->counts);
    if (own->counts == NULL)
        return ddpi_error_nomem(err, gathering->nranks * sizeof *own->counts);
    ddp_status status =
        ddpi_gradients_alloc(ddpi_tensor_memory(gathering->tensors, own->on_gpu),
                             bytes > 0 ? bytes : 1, &own->gathered, err); /* never NULL */
    if (status != DDP_OK)
        return status;
    for (uint32_t rank = 0; rank < gathering->nranks; rank++)
        own->counts[rank] = elements_of(gathering, rank, tensor);
    return DDP_OK;
}

/* Copy between packed host memory and where the tensor lies. */
static ddp_status copy(const struct gathering *gathering, const struct ddp_tensor *own, void *to,
                       const void *from, size_t bytes, struct ddp_error *err)
{
    if (bytes == 0)
        return DDP_OK;
    return ddpi_gradients_copy(ddpi_tensor_memory(gathering->tensors, own->on_gpu), to, from, bytes,
                               ddpi_tensor_stream(gathering->tensors, own->on_gpu), err);
}

static bool some_on_gpu(const struct gathering *gathering, size_t begin, size_t end)
{
    bool some = false;
    for (size_t i = begin; i < end; i++)
        some = some || (gathering->own[i] != NULL && gathering->own[i]->on_gpu);
    return some;
}

/* What this rank gives to the tensors from @begin to @end, in a row. */
static ddp_status pack(const struct gathering *gathering, size_t begin, size_t end, uint8_t *packed,
                       struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = begin; i < end && status == DDP_OK; i++) {
        const struct ddp_tensor *own = gathering->own[i];
        if (own == NULL)
            continue;
        size_t bytes = own->count * element_size(gathering, i);
        status = copy(gathering, own, packed, own->send, bytes, err);
        packed += bytes;
    }
    ddp_status settled =
        ddpi_tensors_settle(gathering->tensors, gathering->comm, some_on_gpu(gathering, begin, end),
                            status == DDP_OK ? err : NULL);
    return status == DDP_OK ? settled : status;
}

/* @packed has a row of each rank. */
static ddp_status unpack(const struct gathering *gathering, size_t begin, size_t end,
                         const uint8_t *packed, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t rank = 0; rank < gathering->nranks; rank++)
        for (size_t i = begin; i < end && status == DDP_OK; i++) {
            const struct ddp_tensor *own = gathering->own[i];
            size_t bytes = elements_of(gathering, rank, i) * element_size(gathering, i), before = 0;
            for (uint32_t lower = 0; lower < rank; lower++)
                before += elements_of(gathering, lower, i) * element_size(gathering, i);
            if (own != NULL)
                status =
                    copy(gathering, own, (uint8_t *)own->gathered + before, packed, bytes, err);
            packed += bytes;
        }
    ddp_status settled =
        ddpi_tensors_settle(gathering->tensors, gathering->comm, some_on_gpu(gathering, begin, end),
                            status == DDP_OK ? err : NULL);
    return status == DDP_OK ? settled : status;
}

/* ---- operations ---- */

static ddp_status gather_bytes(const struct gathering *gathering, const void *send, void *recv,
                               struct ddp_error *err)
{
    const struct ddp_operation gather = {.size = sizeof gather,
                                         .kind = DDP_KIND_ALL_GATHER,
                                         .send = send,
                                         .recv = recv,
                                         .count =
                                             gathering->part_bytes[ddp_comm_rank(gathering->comm)],
                                         .dtype = DDP_BYTE,
                                         .uneven = 1,
                                         .recv_counts = gathering->part_bytes};
    return ddp_run(gathering->comm, &gather, err);
}

static ddp_status gather_packed(const struct gathering *gathering, size_t begin, size_t end,
                                size_t bytes, struct ddp_error *err)
{
    uint8_t *send = alloc_bytes(gathering->part_bytes[ddp_comm_rank(gathering->comm)]);
    uint8_t *recv = alloc_bytes(bytes);
    ddp_status status;
    if (send == NULL || recv == NULL) {
        status = ddpi_error_nomem(err, bytes);
    } else {
        status = pack(gathering, begin, end, send, err);
        if (status == DDP_OK)
            status = gather_bytes(gathering, send, recv, err);
        if (status == DDP_OK)
            status = unpack(gathering, begin, end, recv, err);
    }
    ddpi_free(send);
    ddpi_free(recv);
    return status;
}

/* The tensors from @begin to @end, @bytes of all ranks, by one operation. */
static ddp_status gather_range(const struct gathering *gathering, size_t begin, size_t end,
                               size_t bytes, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = begin; status == DDP_OK && i < end; i++)
        status = alloc_result(gathering, i, err);
    if (status != DDP_OK || bytes == 0)
        return status;
    for (uint32_t rank = 0; rank < gathering->nranks; rank++) {
        gathering->part_bytes[rank] = 0;
        for (size_t i = begin; i < end; i++)
            gathering->part_bytes[rank] +=
                elements_of(gathering, rank, i) * element_size(gathering, i);
    }
    const struct ddp_tensor *own = gathering->own[begin];
    if (end == begin + 1 && own != NULL && !own->on_gpu)
        return gather_bytes(gathering, own->send, own->gathered, err);
    return gather_packed(gathering, begin, end, bytes, err);
}

/* Where the operation ends that begins with tensor @begin: all ranks have the same numbers. */
static size_t range_end(const struct gathering *gathering, size_t begin, size_t threshold,
                        size_t *ret_bytes)
{
    size_t end = begin + 1, bytes = tensor_bytes(gathering, begin);
    for (; end < gathering->count && bytes <= threshold; end++) {
        size_t more = tensor_bytes(gathering, end);
        if (more > threshold - bytes)
            break;
        bytes += more;
    }
    *ret_bytes = bytes;
    return end;
}

static ddp_status gather_all(struct gathering *gathering, size_t threshold,
                             uint64_t *ret_operations, struct ddp_error *err)
{
    ddp_status status = exchange_counts(gathering, err);
    for (size_t at = 0, end, bytes; status == DDP_OK && at < gathering->count; at = end) {
        end = range_end(gathering, at, threshold, &bytes);
        if (bytes == SIZE_MAX)
            return ddpi_error_nomem(err, SIZE_MAX);
        status = gather_range(gathering, at, end, bytes, err);
        *ret_operations += bytes > 0;
    }
    return status;
}

ddp_status ddpi_uneven_gather(const struct ddp_tensors *tensors, ddp_comm *comm,
                              const struct ddpi_tensor_response *const *batch,
                              struct ddp_tensor *const *own, size_t count, uint64_t *ret_operations,
                              struct ddp_error *err)
{
    struct gathering gathering = {.tensors = tensors,
                                  .comm = comm,
                                  .nranks = ddp_comm_world_size(comm),
                                  .batch = batch,
                                  .own = own,
                                  .count = count};
    ddp_status status;
    *ret_operations = 0;
    gathering.given = ddpi_calloc(count * gathering.nranks, sizeof *gathering.given);
    gathering.part_bytes = ddpi_calloc(gathering.nranks, sizeof *gathering.part_bytes);
    if (gathering.given == NULL || gathering.part_bytes == NULL)
        status = ddpi_error_nomem(err, count * gathering.nranks * sizeof *gathering.given);
    else
        status = gather_all(&gathering, tensors->options.fusion_bytes, ret_operations, err);
    ddpi_free(gathering.given);
    ddpi_free(gathering.part_bytes);
    return status;
}
