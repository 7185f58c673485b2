/*
 * submit.c - see submit.h. Owns nothing.
 */
#include "submit.h"

#include "error.h"
#include "mem.h"
#include "progress_impl.h"
#include "refused_run.h"
#include "runs.h"

#include <stdio.h>

/* ---- which type a call is for ---- */

/* Fills @ret_buffer, unless @address is NULL. */
static ddp_status find_type(const struct ddpi_memories *memories, const void *address,
                            const char *what, struct ddpi_buffer *ret_buffer, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    *ret_buffer = (struct ddpi_buffer){0};
    for (unsigned i = 0; address != NULL && ret_buffer->memory == NULL && status == DDP_OK; i++) {
        struct ddpi_memory *memory = memories->open[i];
        if (memory != NULL)
            status = memory->type->look(memory, address, what, ret_buffer, err);
    }
    return status;
}

/* An operation without elements is for the type that has streams, if a stream is passed. */
static struct ddpi_memory *stream_owner(struct ddpi_memories *memories, const void *stream)
{
    for (unsigned i = 0; stream != NULL && memories->types[i]->library != NULL; i++)
        if (memories->open[i] != NULL)
            return memories->open[i];
    return &memories->host;
}

static bool is_one_place(const struct ddpi_buffer *a, const struct ddpi_buffer *b)
{
    bool one_context = a->context == b->context || a->context == NULL || b->context == NULL;
    return a->memory == b->memory && a->ordinal == b->ordinal && one_context;
}

/* What @address of buffer @index is; all buffers of a list must be of one place. */
static ddp_status add_to_list(const struct ddpi_memories *memories, const void *address,
                              size_t index, struct ddpi_buffer *first, struct ddp_error *err)
{
    struct ddpi_buffer buffer;
    char what[48];
    snprintf(what, sizeof what, "buffer %zu of the list", index);
    ddp_status status = find_type(memories, address, what, &buffer, err);
    if (status != DDP_OK)
        return status;
    if (first->memory == NULL)
        *first = buffer;
    if (is_one_place(first, &buffer))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s is memory of the %s (device %d), and the first one of the %s (device "
                          "%d) or of another context: the buffers of a list must be of one kind",
                          what, buffer.memory->type->name, buffer.ordinal,
                          first->memory->type->name, first->ordinal);
}

/* The type of memory of a list; the host's, if it has no elements. */
static ddp_status choose_for_list(struct ddpi_memories *memories, const struct ddpi_task *task,
                                  struct ddpi_buffers *ret_buffers, struct ddpi_memory **ret_memory,
                                  struct ddp_error *err)
{
    struct ddpi_segments segments = ddpi_task_segments(task);
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < segments.nbuffers && status == DDP_OK; i++) {
        const struct ddp_buffer *buffer = &segments.buffers[i];
        const void *send = segments.in_place ? buffer->recv : buffer->send;
        if (buffer->count == 0)
            continue;
        status = add_to_list(memories, send, i, &ret_buffers->send, err);
        if (status == DDP_OK && send != buffer->recv)
            status = add_to_list(memories, buffer->recv, i, &ret_buffers->send, err);
    }
    if (status == DDP_OK && ret_buffers->send.memory != NULL)
        *ret_memory = ret_buffers->send.memory;
    return status;
}

/* A buffer of which the call uses no element is not looked at, unless there is no other way to know
 * where those of other ranks are. */
static ddp_status choose_memory(struct ddpi_memories *memories, const struct ddpi_task *task,
                                const void *stream, struct ddpi_buffers *ret_buffers,
                                struct ddpi_memory **ret_memory, struct ddp_error *err)
{
    *ret_memory = &memories->host;
    if (ddpi_types_only_host_is_open(memories))
        return DDP_OK;
    bool is_barrier = task->call.operation == DDPI_BARRIER;
    bool others_have =
        ddpi_call_is_in_pairs(&task->call); /* elements, even if this rank has none */
    bool any = task->count == 0 && others_have;
    if (is_barrier || any)
        *ret_memory = stream_owner(memories, stream);
    if (is_barrier || (task->count == 0 && !others_have)) /* the host does nothing as well */
        return DDP_OK;
    if (task->list != NULL)
        return choose_for_list(memories, task, ret_buffers, ret_memory, err);
    ddp_status status = find_type(memories, any || task->send_count > 0 ? task->send : NULL,
                                  "the send buffer", &ret_buffers->send, err);
    if (status == DDP_OK)
        status = find_type(memories, any || task->recv_count > 0 ? task->recv : NULL,
                           "the receive buffer", &ret_buffers->recv, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_memory *send = ret_buffers->send.memory, *recv = ret_buffers->recv.memory;
    if (send != NULL && recv != NULL && send != recv)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the send buffer is memory of the %s, the receive buffer of the %s; "
                              "both must be of one kind",
                              send->type->name, recv->type->name);
    if (send != NULL || recv != NULL)
        *ret_memory = send != NULL ? send : recv;
    return DDP_OK;
}

/* Whether an operation may begin. */
static ddp_status check_state(const struct ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_report(comm, err);
    if (status != DDP_OK)
        return status;
    if (atomic_load_explicit(&comm->finalized, memory_order_relaxed))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "rank %u has called ddp_comm_finalize(): only ddp_comm_destroy() is "
                              "left to call",
                              comm->rank);
    return DDP_OK;
}

/* The type of memory of @task, and its buffers. */
static ddp_status find_memory(struct ddp_comm *comm, const struct ddpi_task *task, void *stream,
                              struct ddpi_buffers *ret_buffers, struct ddpi_memory **ret_memory,
                              struct ddp_error *err)
{
    *ret_buffers = (struct ddpi_buffers){0};
    ddp_status status = ddpi_types_open_used(comm, err);
    return status == DDP_OK
               ? choose_memory(&comm->memories, task, stream, ret_buffers, ret_memory, err)
               : status;
}

/* ---- carrying it out ---- */

ddp_status ddpi_submit_refuse(struct ddp_comm *comm, const struct ddpi_task *task,
                              ddp_status status, const struct ddp_error *cause,
                              struct ddp_error *err)
{
    if (status == DDP_E_INVALID)
        return ddpi_error_set(err, status, "%s", cause->msg);
    struct ddpi_run run = {.task = *task};
    ddpi_refused_init(&run, status, cause->msg);
    ddpi_runs_carry_out(comm, &run);
    return ddpi_comm_report(comm, err);
}

ddp_status ddpi_submit_look(struct ddp_comm *comm, const struct ddpi_task *task, void *stream,
                            struct ddpi_buffers *ret_buffers, struct ddpi_memory **ret_memory,
                            struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddp_error cause;
    ddp_status status = check_state(comm, err);
    if (status != DDP_OK)
        return status;
    status = find_memory(comm, task, stream, ret_buffers, ret_memory, &cause);
    return status == DDP_OK ? DDP_OK : ddpi_submit_refuse(comm, task, status, &cause, err);
}

ddp_status ddpi_submit_find_type(struct ddp_comm *comm, const void *address, const char *what,
                                 const struct ddpi_memory_type **ret_type, struct ddp_error *err)
{
    struct ddpi_buffer buffer;
    ddp_status status = ddpi_types_open_used(comm, err);
    if (status == DDP_OK)
        status = find_type(&comm->memories, address, what, &buffer, err);
    if (status == DDP_OK)
        *ret_type = buffer.memory != NULL ? buffer.memory->type : comm->memories.host.type;
    return status;
}

ddp_status ddpi_submit_run(struct ddp_comm *comm, struct ddpi_memory *memory, struct ddpi_run *run,
                           void *stream, struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddp_error cause;
    ddp_status status = memory->type->submit(memory, comm, run, stream, &cause);
    return status == DDP_OK ? DDP_OK : ddpi_submit_refuse(comm, &run->task, status, &cause, err);
}

ddp_status ddpi_submit_start(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                             struct ddp_error *err)
{
    struct ddpi_memory *memory;
    DDPI_UNINITIALIZED struct ddp_error cause;
    ddp_status status = check_state(comm, err);
    if (status != DDP_OK)
        return status;
    status = find_memory(comm, &run->task, stream, &run->buffers, &memory, &cause);
    if (status == DDP_OK)
        status = memory->type->submit(memory, comm, run, stream, &cause);
    if (status == DDP_OK || status == DDP_E_INVALID)
        return status == DDP_OK ? DDP_OK : ddpi_error_set(err, status, "%s", cause.msg);
    ddpi_refused_init(run, status, cause.msg); /* the request fails */
    ddpi_runs_put(comm, run);
    return DDP_OK;
}
