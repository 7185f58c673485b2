/*
 * operations.c - the operations of <ddprun/comm.h> as functions: each fills in the task of a run on
 * its stack. Owns nothing.
 */
#include "communicator.h"
#include "mem.h"
#include "operate.h"

/* Every operation comes through here, with call, send and recv of the task of @run filled in. */
static ddp_status operate(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                          struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    run->task.timeout_ms = comm->timeout_ms;
    return status == DDP_OK ? ddpi_operate(comm, run, stream, err) : status;
}

/* Inline, so that a call is written once, to where the run has it: 39 instructions less. */
static inline __attribute__((always_inline)) ddp_status
operate_plain(struct ddp_comm *comm, const struct ddpi_call *call, const void *send, void *recv,
              void *stream, struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddpi_run run;
    run.task = (struct ddpi_task){.call = *call, .send = send, .recv = recv};
    return operate(comm, &run, stream, err);
}

ddp_status ddp_all_reduce(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, ddp_reduce_op op, void *stream, struct ddp_error *err)
{
    const struct ddpi_call all_reduce = {
        .operation = DDPI_ALL_REDUCE, .count = count, .dtype = dtype, .op = op};
    return operate_plain(comm, &all_reduce, send, recv, stream, err);
}

ddp_status ddp_all_reduce_many(ddp_comm *comm, const struct ddp_buffer *buffers, size_t nbuffers,
                               ddp_dtype dtype, ddp_reduce_op op, void *stream,
                               struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddpi_run run;
    run.task = (struct ddpi_task){.call = {.operation = DDPI_ALL_REDUCE, .dtype = dtype, .op = op}};
    ddp_status status = ddpi_task_set_list(&run.task, buffers, nbuffers, err);
    return status == DDP_OK ? operate(comm, &run, stream, err) : status;
}

ddp_status ddp_reduce(ddp_comm *comm, const void *send, void *recv, size_t count, ddp_dtype dtype,
                      ddp_reduce_op op, uint32_t root, void *stream, struct ddp_error *err)
{
    const struct ddpi_call reduce = {
        .operation = DDPI_REDUCE, .count = count, .dtype = dtype, .op = op, .root = root};
    return operate_plain(comm, &reduce, send, comm->rank == root ? recv : NULL, stream, err);
}

ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t root,
                         void *stream, struct ddp_error *err)
{
    const struct ddpi_call broadcast = {
        .operation = DDPI_BROADCAST, .count = count, .dtype = dtype, .root = root};
    return operate_plain(comm, &broadcast, buffer, buffer, stream, err);
}

ddp_status ddp_all_gather(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, void *stream, struct ddp_error *err)
{
    const struct ddpi_call all_gather = {
        .operation = DDPI_ALL_GATHER, .count = count, .dtype = dtype};
    return operate_plain(comm, &all_gather, send, recv, stream, err);
}

ddp_status ddp_reduce_scatter(ddp_comm *comm, const void *send, void *recv, size_t count,
                              ddp_dtype dtype, ddp_reduce_op op, void *stream,
                              struct ddp_error *err)
{
    const struct ddpi_call reduce_scatter = {
        .operation = DDPI_REDUCE_SCATTER, .count = count, .dtype = dtype, .op = op};
    return operate_plain(comm, &reduce_scatter, send, recv, stream, err);
}

ddp_status ddp_send(ddp_comm *comm, const void *buffer, size_t count, ddp_dtype dtype,
                    uint32_t peer, void *stream, struct ddp_error *err)
{
    const struct ddpi_call send = {
        .operation = DDPI_SEND, .count = count, .dtype = dtype, .root = peer};
    return operate_plain(comm, &send, buffer, NULL, stream, err);
}

ddp_status ddp_recv(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t peer,
                    void *stream, struct ddp_error *err)
{
    const struct ddpi_call recv = {
        .operation = DDPI_RECV, .count = count, .dtype = dtype, .root = peer};
    return operate_plain(comm, &recv, NULL, buffer, stream, err);
}

ddp_status ddp_recv_any(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t tag,
                        uint32_t *ret_source, struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddpi_run run;
    run.task = (struct ddpi_task){.call = {.operation = DDPI_RECV,
                                           .count = count,
                                           .dtype = dtype,
                                           .root = DDP_ANY_RANK,
                                           .tag = tag},
                                  .recv = buffer,
                                  .source = ret_source};
    return operate(comm, &run, NULL, err);
}

ddp_status ddp_barrier(ddp_comm *comm, void *stream, struct ddp_error *err)
{
    return operate_plain(comm, &(struct ddpi_call){.operation = DDPI_BARRIER}, NULL, NULL, stream,
                         err);
}

ddp_status ddp_monitored_barrier(ddp_comm *comm, uint32_t timeout_ms, struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddpi_run run;
    run.task = (struct ddpi_task){.call = {.operation = DDPI_MONITORED}};
    ddp_status status = ddpi_comm_check_home(comm, err);
    run.task.timeout_ms = timeout_ms != 0 ? timeout_ms : comm->timeout_ms;
    return status == DDP_OK ? ddpi_operate(comm, &run, NULL, err) : status;
}

ddp_status ddp_gather(ddp_comm *comm, const void *send, void *recv, size_t count, ddp_dtype dtype,
                      uint32_t root, void *stream, struct ddp_error *err)
{
    const struct ddpi_call gather = {
        .operation = DDPI_GATHER, .count = count, .dtype = dtype, .root = root};
    return operate_plain(comm, &gather, send, comm->rank == root ? recv : NULL, stream, err);
}

ddp_status ddp_scatter(ddp_comm *comm, const void *send, void *recv, size_t count, ddp_dtype dtype,
                       uint32_t root, void *stream, struct ddp_error *err)
{
    const struct ddpi_call scatter = {
        .operation = DDPI_SCATTER, .count = count, .dtype = dtype, .root = root};
    return operate_plain(comm, &scatter, comm->rank == root ? send : NULL, recv, stream, err);
}

ddp_status ddp_all_to_all(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, void *stream, struct ddp_error *err)
{
    const struct ddpi_call all_to_all = {
        .operation = DDPI_ALL_TO_ALL, .count = count, .dtype = dtype};
    return operate_plain(comm, &all_to_all, send, recv, stream, err);
}
