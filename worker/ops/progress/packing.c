/*
 * packing.c - packs the buffers of a list into one and back. Owns that one, which is the buffer of
 * the task in between.
 */
#include "progress_impl.h"

#include "mem.h"

/* Whether this rank is the one of a broadcast that has the elements. */
static bool is_root(const struct ddp_comm *comm, const struct ddpi_call *call)
{
    return ddpi_call_shape(call)->rooted && call->root == comm->rank;
}

ddp_status ddpi_pack(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_task *task = &run->task;
    struct ddpi_segments segments = ddpi_task_segments(task);
    size_t len = task->count * task->element_size;
    if (run->algorithm->takes_lists || len == 0)
        return DDP_OK;
    task->recv = ddpi_calloc(1, len);
    task->send = task->recv;
    if (task->recv == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM,
                              "rank %u: no memory to pack %u buffers of %zu bytes together",
                              comm->rank, task->call.buffers, len);
    if (!ddpi_call_shape(&task->call)->rooted || is_root(comm, &task->call))
        ddpi_segments_pack(&segments, task->recv);
    return DDP_OK;
}

void ddpi_unpack(const struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    struct ddpi_task *task = &run->task;
    struct ddpi_segments segments = ddpi_task_segments(task);
    if (status == DDP_OK && task->recv != NULL && !is_root(comm, &task->call))
        ddpi_segments_unpack(&segments, task->recv);
    ddpi_free(task->recv);
    task->recv = NULL;
}
