/*
 * alloc.c - ddp_alloc() and ddp_free(): the ranks tell each other what they want, and whether they
 * can see one memory; rank 0 makes a file, which goes round the ring, and each maps it. Owns the
 * window until it is the communicator's.
 */
#include "arena_run.h"
#include "error.h"
#include "grouped_calls.h"
#include "mem.h"
#include "parent_call.h"
#include "runs.h"
#include "window_run.h"

#include <string.h>
#include <unistd.h>

/* What a rank tells all others. */
struct record {
    uint8_t size_low[4], size_high[4];
    uint8_t shares[4]; /* 1: it sees memory of all ranks, and may use it */
    uint8_t number[4]; /* of the window that it frees */
    struct ddpi_finding finding;
};

struct making {
    struct ddp_comm *comm;
    struct record *records; /* by rank */
    uint64_t *sizes;
    struct ddpi_window *window;
    int fd;
};

/* Every rank learns what the others have in their records. */
static ddp_status exchange_records(struct ddp_comm *comm, struct record *records,
                                   enum ddpi_operation operation, struct ddp_error *err)
{
    const struct ddpi_call call = {.operation = operation, .count = sizeof *records};
    return ddpi_parent_call(comm, &call, &records[comm->rank], records, err);
}

/* This rank's part of the work has ended with @status: if that of any rank has failed, all fail,
 * with the sentence of the lowest. */
static ddp_status agree(const struct making *making, ddp_status status, struct ddp_error *cause,
                        struct ddp_error *err)
{
    uint32_t rank = making->comm->rank, ranks = making->comm->world_size;
    if (status != DDP_OK)
        ddpi_error_wrap(cause, status, "rank %u", rank);
    ddpi_finding_fill(&making->records[rank].finding, status, status == DDP_OK ? "" : cause->msg);
    status = exchange_records(making->comm, making->records, DDPI_ALLOC, err);
    for (uint32_t i = 0; i < ranks && status == DDP_OK; i++)
        status = ddpi_finding_result(&making->records[i].finding, err);
    return status;
}

/* Sets *@ret_shared: all ranks can have one memory. */
static ddp_status exchange_sizes(const struct making *making, size_t bytes, bool *ret_shared,
                                 struct ddp_error *err)
{
    struct ddp_comm *comm = making->comm;
    struct record *own = &making->records[comm->rank];
    bool shares = ddpi_arena_is_chosen(comm);
    ddpi_put32(own->size_low, (uint32_t)bytes);
    ddpi_put32(own->size_high, (uint32_t)((uint64_t)bytes >> 32));
    ddpi_put32(own->shares, shares);
    ddp_status status = exchange_records(comm, making->records, DDPI_ALLOC, err);
    *ret_shared = true;
    for (uint32_t rank = 0; rank < comm->world_size; rank++) {
        const struct record *record = &making->records[rank];
        making->sizes[rank] =
            (uint64_t)ddpi_get32(record->size_high) << 32 | ddpi_get32(record->size_low);
        *ret_shared = *ret_shared && ddpi_get32(record->shares) == 1;
    }
    return status;
}

/* One memory for all ranks. */
static ddp_status make_shared(struct making *making, ddp_status status, struct ddp_error *cause,
                              struct ddp_error *err)
{
    struct ddp_comm *comm = making->comm;
    if (status == DDP_OK && comm->rank == 0)
        status = ddpi_window_make(making->window, &making->fd, cause);
    status = agree(making, status, cause, err);
    if (status == DDP_OK)
        status = ddpi_window_pass(comm, &making->fd, err);
    if (status != DDP_OK)
        return status;
    status = agree(making, ddpi_window_map(making->window, making->fd, cause), cause, err);
    if (status == DDP_OK)
        ddpi_window_settle(making->window);
    return status;
}

static ddp_status make_window(struct making *making, size_t bytes, struct ddp_error *err)
{
    struct ddp_comm *comm = making->comm;
    struct ddp_error cause;
    bool shared;
    making->records = ddpi_calloc(comm->world_size, sizeof *making->records);
    making->sizes = ddpi_calloc(comm->world_size, sizeof *making->sizes);
    if (making->records == NULL || making->sizes == NULL)
        return ddpi_parent_give_up(
            comm, (unsigned long long)comm->world_size * sizeof *making->records, err);
    ddp_status status = exchange_sizes(making, bytes, &shared, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_window_plan(making->sizes, comm->world_size, comm->rank, &making->window, &cause);
    if (shared)
        return make_shared(making, status, &cause, err);
    if (status == DDP_OK)
        status = ddpi_window_map_own(making->window, &cause);
    return agree(making, status, &cause, err);
}

ddp_status ddp_alloc(ddp_comm *comm, size_t bytes, void **ret, struct ddp_error *err)
{
    struct making making = {.comm = comm, .fd = -1};
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(comm, "ddp_alloc", err);
    if (status != DDP_OK)
        return status;
    status = make_window(&making, bytes, err);
    if (status == DDP_OK) {
        ddpi_windows_add(&comm->windows, making.window);
        *ret = ddpi_window_own(making.window);
    } else {
        ddpi_window_free(making.window);
    }
    if (making.fd >= 0)
        close(making.fd);
    ddpi_free(making.sizes);
    ddpi_free(making.records);
    return status;
}

/* ---- the end ---- */

/* All ranks free the same. */
static ddp_status check_numbers(struct ddp_comm *comm, const struct record *records,
                                struct ddp_error *err)
{
    uint32_t own = ddpi_get32(records[comm->rank].number);
    for (uint32_t rank = 0; rank < comm->world_size; rank++) {
        uint32_t number = ddpi_get32(records[rank].number);
        if (number == own)
            continue;
        (void)ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH,
                             "rank %u frees what ddp_alloc() call %u has returned, but rank %u "
                             "frees that of call %u",
                             comm->rank, own, rank, number);
        return ddpi_comm_report(comm, err);
    }
    return DDP_OK;
}

/* No rank uses the window any more, or the communicator has failed. */
static ddp_status meet_to_free(struct ddp_comm *comm, uint32_t number, struct ddp_error *err)
{
    struct record *records = ddpi_calloc(comm->world_size, sizeof *records);
    if (records == NULL)
        return ddpi_parent_give_up(comm, (unsigned long long)comm->world_size * sizeof *records,
                                   err);
    ddpi_put32(records[comm->rank].number, number);
    ddp_status status = exchange_records(comm, records, DDPI_FREE, err);
    if (status == DDP_OK)
        status = check_numbers(comm, records, err);
    ddpi_free(records);
    return status;
}

ddp_status ddp_free(ddp_comm *comm, void *ptr, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(comm, "ddp_free", err);
    if (status != DDP_OK)
        return status;
    struct ddpi_window *window = ddpi_windows_find(&comm->windows, ptr);
    if (window == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%p is not what ddp_alloc() has returned for this communicator, or "
                              "is freed already",
                              ptr);
    status = meet_to_free(comm, ddpi_window_number(window), err);
    ddpi_runs_drain(comm);
    ddpi_windows_remove(&comm->windows, window);
    ddpi_window_free(window);
    return status;
}
