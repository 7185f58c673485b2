/*
 * alloc.c - ddp_alloc(), ddp_free() and ddp_alloc_detach(): memory in windows (windows.h), for
 * which the ranks of a machine must have an arena. Owns nothing; the windows are the
 * communicator's.
 */
#include "arena_run.h"
#include "error.h"
#include "grouped_calls.h"
#include "runs.h"

static ddp_status have_arena(struct ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(comm, "ddp_alloc", err);
    if (status == DDP_OK)
        status = ddpi_comm_report(comm, err);
    bool has_to_meet = ddpi_arena_is_chosen(comm) && !ddpi_windows_are_open(&comm->windows);
    return status == DDP_OK && has_to_meet ? ddpi_arena_have(comm, err) : status;
}

ddp_status ddp_alloc(ddp_comm *comm, size_t bytes, void **ret, struct ddp_error *err)
{
    struct ddp_error cause;
    ddp_status status = have_arena(comm, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_windows_make(&comm->windows, bytes, ret, &cause);
    return status == DDP_OK ? DDP_OK
                            : ddpi_error_set(err, status, "rank %u: %s", comm->rank, cause.msg);
}

static ddp_status refuse_pointer(const void *ptr, struct ddp_error *err)
{
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "%p is not what ddp_alloc() has returned for this communicator, or is freed already", ptr);
}

/* After a failure runs that have the memory are about to end. */
ddp_status ddp_free(ddp_comm *comm, void *ptr, struct ddp_error *err)
{
    struct ddp_error ignored;
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status != DDP_OK)
        return status;
    if (ddpi_comm_report(comm, &ignored) != DDP_OK)
        ddpi_runs_drain(comm);
    if (ddpi_windows_free(&comm->windows, ptr))
        return DDP_OK;
    return refuse_pointer(ptr, err);
}

ddp_status ddp_alloc_detach(ddp_comm *comm, void *ptr, size_t *ret_bytes, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status != DDP_OK || ddpi_windows_detach(&comm->windows, ptr, ret_bytes))
        return status;
    return refuse_pointer(ptr, err);
}
