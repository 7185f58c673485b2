/*
 * reducer_share.c - gives all ranks the parameters and buffers of one rank, in lists of at most 250
 * MiB. Owns nothing.
 */
#include "reducer.h"

#include "error.h"
#include "mem.h"

#define LIST_BYTES (UINT64_C(250) << 20)

static ddp_status send_list(struct ddp_reducer *reducer, const struct ddp_buffer *list,
                            size_t count, ddp_dtype dtype, uint32_t root, struct ddp_error *err)
{
    if (count == 0)
        return DDP_OK;
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_BROADCAST,
                                      .dtype = dtype,
                                      .peer = root,
                                      .buffers = list,
                                      .nbuffers = count};
    ddp_request *request;
    ddp_status status = ddp_start(reducer->comm, &operation, &request, err);
    if (status == DDP_OK)
        status = ddp_request_wait(request, 0, NULL, err); /* on device memory, too */
    ddp_request_free(request);
    return status;
}

/* Those of one type, in their order. */
static ddp_status share_type(struct ddp_reducer *reducer, const struct ddpi_parameter *parameters,
                             uint32_t count, ddp_dtype dtype, uint32_t root,
                             struct ddp_buffer *list, struct ddp_error *err)
{
    size_t length = 0;
    uint64_t bytes = 0;
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < count && status == DDP_OK; i++) {
        const struct ddpi_parameter *parameter = &parameters[i];
        if (parameter->dtype != dtype || parameter->data == NULL)
            continue;
        list[length++] = (struct ddp_buffer){.recv = parameter->data, .count = parameter->count};
        bytes += parameter->count * ddp_dtype_size(dtype);
        if (bytes < LIST_BYTES)
            continue;
        status = send_list(reducer, list, length, dtype, root, err);
        length = 0;
        bytes = 0;
    }
    return status == DDP_OK ? send_list(reducer, list, length, dtype, root, err) : status;
}

ddp_status ddpi_reducer_share(struct ddp_reducer *reducer, const struct ddpi_parameter *parameters,
                              uint32_t count, uint32_t root, struct ddp_error *err)
{
    struct ddp_buffer *list = ddpi_calloc((size_t)count + 1, sizeof *list);
    if (list == NULL)
        return ddpi_error_nomem(err, ((size_t)count + 1) * sizeof *list);
    ddp_status status = DDP_OK;
    bool seen[DDPI_PLAN_KEYS] = {false};
    for (uint32_t i = 0; i < count && status == DDP_OK; i++)
        if (!seen[parameters[i].dtype]) {
            seen[parameters[i].dtype] = true;
            status = share_type(reducer, parameters, count, parameters[i].dtype, root, list, err);
        }
    ddpi_free(list);
    return status;
}
