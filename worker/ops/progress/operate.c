/*
 * operate.c - runs an operation on the memory type of its buffers. Owns nothing.
 */
#include "operate.h"

#include "error.h"
#include "grouped_calls.h"
#include "mem.h"
#include "progress_impl.h"
#include "runs.h"
#include "submit.h"

static void free_run(void *run, ddp_status status)
{
    (void)status;
    ddpi_free(run);
}

/* Nothing waits for the run but a stream. */
static ddp_status enqueue(struct ddp_comm *comm, struct ddpi_memory *memory,
                          const struct ddpi_run *called, void *stream, struct ddp_error *err)
{
    struct ddpi_run *run = ddpi_calloc(1, sizeof *run);
    if (run == NULL) {
        struct ddp_error cause;
        return ddpi_submit_refuse(comm, &called->task, ddpi_error_nomem(&cause, sizeof *run),
                                  &cause, err);
    }
    run->task = called->task;
    run->buffers = called->buffers;
    run->ended = free_run;
    run->ended_arg = run;
    ddp_status status = ddpi_submit_run(comm, memory, run, stream, err);
    if (status != DDP_OK)
        ddpi_free(run);
    return status;
}

static ddp_status run_to_end(struct ddp_comm *comm, struct ddpi_memory *memory,
                             struct ddpi_run *run, void *stream, struct ddp_error *err)
{
    run->is_awaited = true;
    run->is_request = run->is_repeat = false;
    run->cause = NULL;
    run->ended = NULL;
    ddp_status status = ddpi_submit_run(comm, memory, run, stream, err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_run_is_done(run))
        (void)ddpi_runs_wait(comm, run, 0);
    if (run->status != DDP_OK)
        return ddpi_comm_report(comm, err);
    if (memory == &comm->memories.host)
        ddpi_repeat_keep(comm, run);
    return DDP_OK;
}

ddp_status ddpi_operate(struct ddp_comm *comm, struct ddpi_run *run, void *stream,
                        struct ddp_error *err)
{
    struct ddpi_memory *memory;
    DDPI_UNINITIALIZED struct ddp_error cause;
    ddp_status status;
    bool is_grouped = ddpi_group_is_open(comm);
    if (!is_grouped && stream == NULL && ddpi_repeat_call(comm, &run->task, &status))
        return status == DDP_OK ? DDP_OK : ddpi_comm_report(comm, err);
    status = ddpi_task_prepare(&run->task, comm->rank, comm->world_size, &cause);
    if (status != DDP_OK)
        return ddpi_submit_refuse(comm, &run->task, status, &cause, err);
    if (is_grouped)
        return ddpi_operate_together(comm, &run->task, 1, stream, err);
    status = ddpi_submit_look(comm, &run->task, stream, &run->buffers, &memory, err);
    if (status != DDP_OK)
        return status;
    return memory->type->enqueues ? enqueue(comm, memory, run, stream, err)
                                  : run_to_end(comm, memory, run, stream, err);
}
