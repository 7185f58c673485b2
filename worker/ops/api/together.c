/*
 * together.c - operations that are under way at once: groups of calls, and a message in each
 * direction. Owns nothing.
 */
#include "communicator.h"
#include "grouped_calls.h"

ddp_status ddp_group_start(ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    return status == DDP_OK ? ddpi_group_open(comm, err) : status;
}

ddp_status ddp_group_end(ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    return status == DDP_OK ? ddpi_group_close(comm, err) : status;
}

/* The receive comes first: then a message of this rank to itself needs no memory. */
ddp_status ddp_send_recv(ddp_comm *comm, const void *send, size_t send_count, uint32_t to,
                         void *recv, size_t recv_count, uint32_t from, ddp_dtype dtype,
                         void *stream, struct ddp_error *err)
{
    struct ddpi_task tasks[] = {
        {.call = {.operation = DDPI_RECV, .count = recv_count, .dtype = dtype, .root = from},
         .recv = recv},
        {.call = {.operation = DDPI_SEND, .count = send_count, .dtype = dtype, .root = to},
         .send = send}};
    ddp_status status = ddpi_comm_check_home(comm, err);
    for (unsigned i = 0; i < 2 && status == DDP_OK; i++) {
        status = ddpi_task_prepare(&tasks[i], comm->rank, comm->world_size, err);
        tasks[i].timeout_ms = comm->timeout_ms;
    }
    return status == DDP_OK ? ddpi_operate_together(comm, tasks, 2, stream, err) : status;
}
