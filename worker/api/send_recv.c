/*
 * send_recv.c - ddp_send() and ddp_recv(): checks a call, then has the device's engine or the
 * host's messages carry it out. Owns nothing.
 */
#include "device.h"
#include "error.h"
#include "peer_message.h"

static ddp_status check_message(const struct ddp_comm *comm, const struct ddpi_call *call,
                                const void *buffer, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_call(comm, call, err);
    if (status != DDP_OK)
        return status;
    if (call->root >= comm->world_size)
        return ddpi_error_set(err, DDP_E_INVALID, "rank %u does not exist in a world of %u ranks",
                              call->root, comm->world_size);
    if (call->root == comm->rank)
        return ddpi_error_set(err, DDP_E_INVALID, "rank %u has no messages for itself", comm->rank);
    if (buffer == NULL && call->count > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "the buffer of %zu elements is NULL",
                              call->count);
    return DDP_OK;
}

static ddp_status transfer(struct ddp_comm *comm, struct ddpi_call *call, void *buffer,
                           struct ddp_error *err)
{
    size_t len = call->count * ddp_dtype_size(call->dtype);
    struct ddpi_edge *edge;
    ddp_status status = comm->failed != DDP_OK ? comm->failed : ddpi_comm_check_abort(comm);
    if (status == DDP_OK) {
        call->seq = ddpi_p2p_next(comm, call);
        ddpi_p2p_count(comm, call);
        status = ddpi_p2p_open(comm, call, buffer, len, &edge);
    }
    if (status != DDP_OK)
        return ddpi_error_set(err, comm->failed, "%s", comm->cause);
    *(call->operation == DDPI_SEND ? &comm->bytes_sent : &comm->bytes_received) += len;
    comm->operations++;
    return DDP_OK;
}

/* One of the two calls, on whatever memory it is. */
static ddp_status exchange(struct ddp_comm *comm, struct ddpi_call *call, const void *send,
                           void *recv, void *stream, struct ddp_error *err)
{
    const void *buffer = call->operation == DDPI_SEND ? send : recv;
    ddp_status status = check_message(comm, call, buffer, err);
    if (status != DDP_OK)
        return status;
    const struct ddpi_job job = {.call = *call,
                                 .send = send,
                                 .recv = recv,
                                 .ring = {.kind = DDPI_RING_BROADCAST,
                                          .rank = call->operation == DDPI_SEND ? 0 : 1,
                                          .nranks = 2},
                                 .count = call->count,
                                 .element_size = ddp_dtype_size(call->dtype),
                                 .timeout_ms = comm->timeout_ms};
    bool taken;
    status = ddpi_device_take(comm, &job, stream, &taken, err);
    if (status != DDP_OK || taken)
        return status;
    if (stream != NULL && call->count > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "host memory takes no stream: pass NULL");
    return transfer(comm, call, (void *)(uintptr_t)buffer, err);
}

ddp_status ddp_send(ddp_comm *comm, const void *buffer, size_t count, ddp_dtype dtype,
                    uint32_t peer, void *stream, struct ddp_error *err)
{
    struct ddpi_call call = {.operation = DDPI_SEND, .count = count, .dtype = dtype, .root = peer};
    return exchange(comm, &call, buffer, NULL, stream, err);
}

ddp_status ddp_recv(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t peer,
                    void *stream, struct ddp_error *err)
{
    struct ddpi_call call = {.operation = DDPI_RECV, .count = count, .dtype = dtype, .root = peer};
    return exchange(comm, &call, NULL, buffer, stream, err);
}
