/*
 * grouped_calls.c - notes the calls of a group, starts them together and waits for them. Owns each
 * noted call until it has ended.
 */
#include "grouped_calls.h"

#include "call_group.h"
#include "communicator.h"
#include "error.h"
#include "mem.h"
#include "runs.h"
#include "submit.h"

#include <pthread.h>

/* ---- whose group is open ---- */

static uintptr_t this_thread(void)
{
    return (uintptr_t)pthread_self();
}

bool ddpi_group_is_open(const struct ddp_comm *comm)
{
    uintptr_t owner = atomic_load_explicit(&comm->group.owner, memory_order_relaxed);
    return owner != 0 && owner == this_thread();
}

ddp_status ddpi_group_open(struct ddp_comm *comm, struct ddp_error *err)
{
    uintptr_t none = 0;
    if (ddpi_group_is_open(comm)) {
        comm->group.depth++;
        return DDP_OK;
    }
    if (!atomic_compare_exchange_strong(&comm->group.owner, &none, this_thread()))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "another thread of rank %u has a group of calls open on this "
                              "communicator: one thread at a time may",
                              comm->rank);
    comm->group.depth = 1;
    ddpi_call_group_init(&comm->group.calls);
    return DDP_OK;
}

ddp_status ddpi_group_refuse(const struct ddp_comm *comm, const char *name, struct ddp_error *err)
{
    if (!ddpi_group_is_open(comm))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "rank %u calls %s() in a group of calls: call ddp_group_end() before it",
                          comm->rank, name);
}

void ddpi_group_drop(struct ddp_comm *comm)
{
    if (atomic_exchange(&comm->group.owner, 0) != 0)
        ddpi_call_group_clear(&comm->group.calls);
}

/* ---- noting ---- */

/* No order of messages that wait for each other has a place for a receive of unknown peer. */
static ddp_status check_source(const struct ddpi_memory *memory, const struct ddpi_call *call,
                               struct ddp_error *err)
{
    if (!memory->type->enqueues || !ddpi_call_shape(call)->message || call->root != DDP_ANY_RANK)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "a group of calls on memory of the %s does not receive from any rank: "
                          "name the sender, or receive after the group",
                          memory->type->name);
}

static ddp_status note_call(struct ddp_comm *comm, struct ddpi_call_group *group,
                            const struct ddpi_task *task, void *stream, struct ddp_error *err)
{
    struct ddpi_memory *memory;
    struct ddpi_buffers buffers;
    struct ddp_error cause;
    ddp_status status = ddpi_submit_look(comm, task, stream, &buffers, &memory, err);
    if (status == DDP_OK)
        status = check_source(memory, &task->call, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_grouped_call *call = ddpi_calloc(1, sizeof *call);
    if (call == NULL)
        return ddpi_submit_refuse(comm, task, ddpi_error_nomem(&cause, sizeof *call), &cause, err);
    call->run.task = *task;
    call->run.buffers = buffers;
    call->memory = memory;
    call->stream = stream;
    ddpi_call_group_add(group, call, comm->rank);
    return DDP_OK;
}

/* ---- starting ---- */

static void free_call(void *call, ddp_status status)
{
    (void)status;
    ddpi_free(call);
}

/* Start @call. If it blocks, it is in @started afterwards; else nothing but a stream waits for
 * it. */
static ddp_status start_call(struct ddp_comm *comm, struct ddpi_grouped_call *call,
                             struct ddpi_list *started, struct ddp_error *err)
{
    bool blocks = !call->memory->type->enqueues;
    call->run.ended = blocks ? NULL : free_call;
    call->run.ended_arg = call;
    ddp_status status = ddpi_comm_report(comm, err);
    if (status == DDP_OK)
        status = ddpi_submit_run(comm, call->memory, &call->run, call->stream, err);
    if (status != DDP_OK)
        ddpi_free(call);
    else if (blocks)
        ddpi_list_append(started, &call->link);
    return status;
}

/* Whether all calls in @started have succeeded; frees them. */
static bool await_calls(struct ddp_comm *comm, struct ddpi_list *started)
{
    bool all = true;
    ddpi_list_for_each_safe (node, started) {
        struct ddpi_grouped_call *call = ddpi_container_of(node, struct ddpi_grouped_call, link);
        (void)ddpi_runs_wait(comm, &call->run, 0);
        all &= call->run.status == DDP_OK;
        ddpi_free(call);
    }
    return all;
}

/* Leaves @group empty. A failure of the communicator counts more than a call that is refused. */
static ddp_status run_group(struct ddp_comm *comm, struct ddpi_call_group *group,
                            struct ddp_error *err)
{
    struct ddpi_list started;
    struct ddp_error cause, ignored;
    ddp_status first = DDP_OK;
    ddpi_list_init(&started);
    for (struct ddpi_grouped_call *call; (call = ddpi_call_group_take(group)) != NULL;) {
        ddp_status status = start_call(comm, call, &started, first == DDP_OK ? &cause : &ignored);
        first = first == DDP_OK ? status : first;
    }
    if (!await_calls(comm, &started))
        return ddpi_comm_report(comm, err);
    return first == DDP_OK ? DDP_OK : ddpi_error_set(err, first, "%s", cause.msg);
}

ddp_status ddpi_group_close(struct ddp_comm *comm, struct ddp_error *err)
{
    struct ddpi_call_group group;
    if (!ddpi_group_is_open(comm))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "this thread of rank %u has no group of calls open: call "
                              "ddp_group_start() first",
                              comm->rank);
    if (--comm->group.depth > 0)
        return DDP_OK;
    ddpi_call_group_init(&group);
    ddpi_call_group_move(&group, &comm->group.calls);
    atomic_store(&comm->group.owner, 0); /* another thread may open one meanwhile */
    return run_group(comm, &group, err);
}

ddp_status ddpi_operate_together(struct ddp_comm *comm, const struct ddpi_task *tasks,
                                 unsigned count, void *stream, struct ddp_error *err)
{
    struct ddpi_call_group group;
    ddp_status status = DDP_OK;
    ddpi_call_group_init(&group);
    for (unsigned i = 0; i < count && status == DDP_OK; i++)
        status = note_call(comm, &group, &tasks[i], stream, err);
    if (status != DDP_OK)
        ddpi_call_group_clear(&group);
    else if (ddpi_group_is_open(comm))
        for (struct ddpi_grouped_call *call; (call = ddpi_call_group_take(&group)) != NULL;)
            ddpi_call_group_add(&comm->group.calls, call, comm->rank);
    else
        status = run_group(comm, &group, err);
    return status;
}
