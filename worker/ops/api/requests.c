/*
 * requests.c - <ddprun/comm_requests.h>: operations as structs, and requests, which are runs
 * (run.h) on the heap. Owns each request from ddp_start() until it has ended and was freed.
 */
#include "clock.h"
#include "communicator.h"
#include "error.h"
#include "mem.h"
#include "operate.h"
#include "runs.h"
#include "submit.h"

/* Programs that were built before there were lists, or the finite check, have a shorter struct. */
#define SIZE_WITHOUT_LIST  offsetof(struct ddp_operation, buffers)
#define SIZE_WITHOUT_CHECK offsetof(struct ddp_operation, non_finite)

struct ddp_request {
    struct ddpi_run run;
    struct ddp_comm *comm; /* used until the run has ended */
    char cause[DDP_ERROR_TEXT];
};

/* ---- an operation as a task ---- */

static const struct {
    enum ddpi_operation operation;
    bool takes_parts; /* a buffer may have uneven parts */
    bool takes_list;  /* of buffers */
} kinds[] = {
    [DDP_KIND_BARRIER] = {DDPI_BARRIER, false, false},
    [DDP_KIND_MONITORED_BARRIER] = {DDPI_MONITORED, false, false},
    [DDP_KIND_BROADCAST] = {DDPI_BROADCAST, false, true},
    [DDP_KIND_ALL_REDUCE] = {DDPI_ALL_REDUCE, false, true},
    [DDP_KIND_REDUCE] = {DDPI_REDUCE, false, false},
    [DDP_KIND_ALL_GATHER] = {DDPI_ALL_GATHER, true, false},
    [DDP_KIND_REDUCE_SCATTER] = {DDPI_REDUCE_SCATTER, true, false},
    [DDP_KIND_GATHER] = {DDPI_GATHER, true, false},
    [DDP_KIND_SCATTER] = {DDPI_SCATTER, true, false},
    [DDP_KIND_ALL_TO_ALL] = {DDPI_ALL_TO_ALL, true, false},
    [DDP_KIND_SEND] = {DDPI_SEND, false, false},
    [DDP_KIND_RECV] = {DDPI_RECV, false, false},
};

static bool has_list(const struct ddp_operation *operation)
{
    return operation->size > SIZE_WITHOUT_LIST &&
           (operation->buffers != NULL || operation->nbuffers > 0);
}

static bool has_finite_check(const struct ddp_operation *operation)
{
    return operation->size > SIZE_WITHOUT_CHECK && operation->non_finite != NULL;
}

static ddp_status check_operation(const struct ddp_operation *operation, struct ddp_error *err)
{
    if (operation->size != sizeof *operation && operation->size != SIZE_WITHOUT_LIST &&
        operation->size != SIZE_WITHOUT_CHECK)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the size of the ddp_operation is %zu, not %zu: set it to "
                              "sizeof(struct ddp_operation)",
                              operation->size, sizeof *operation);
    if ((unsigned)operation->kind >= sizeof kinds / sizeof *kinds)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not a kind of operation",
                              (int)operation->kind);
    if (operation->uneven != 0 && !kinds[operation->kind].takes_parts)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "this operation has no parts that could be uneven: set uneven to 0");
    if (operation->uneven == 0 &&
        (operation->send_counts != NULL || operation->recv_counts != NULL ||
         operation->send_offsets != NULL || operation->recv_offsets != NULL))
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "there are counts or offsets of parts, but uneven is 0: set it to 1 on all ranks");
    if (has_list(operation) && !kinds[operation->kind].takes_list)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "of the operations only all_reduce and broadcast take a list of "
                              "buffers: set buffers to NULL, and nbuffers to 0");
    return DDP_OK;
}

/* Ranks compare calls, so these are without the members that their kind does not use. */
static struct ddpi_call call_of(const struct ddp_operation *operation)
{
    struct ddpi_call call = {.operation = kinds[operation->kind].operation};
    const struct ddpi_shape *shape = ddpi_call_shape(&call);
    if (shape->has_elements) {
        call.count = operation->count;
        call.dtype = operation->dtype;
    }
    if (shape->reduces)
        call.op = operation->op;
    if (shape->rooted || shape->message)
        call.root = operation->peer;
    if (shape->message)
        call.tag = operation->tag;
    return call;
}

/* Call, buffers and parts; ddpi_task_prepare() sets the rest. */
static struct ddpi_task task_of(const struct ddp_comm *comm, const struct ddp_operation *operation)
{
    struct ddpi_task task = {.call = call_of(operation),
                             .send = operation->send,
                             .recv = operation->recv,
                             .factor = operation->factor,
                             .uneven = operation->uneven != 0,
                             .send_parts = {operation->send_counts, operation->send_offsets},
                             .recv_parts = {operation->recv_counts, operation->recv_offsets},
                             .source = operation->kind == DDP_KIND_RECV ? operation->source : NULL,
                             .timeout_ms = operation->timeout_ms != 0 ? operation->timeout_ms
                                                                      : comm->timeout_ms};
    if (operation->kind == DDP_KIND_BROADCAST)
        task.send = task.recv;
    if (has_finite_check(operation))
        task.non_finite = operation->non_finite;
    return task;
}

static ddp_status make_task(const struct ddp_comm *comm, const struct ddp_operation *operation,
                            struct ddpi_task *ret_task, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = check_operation(operation, err);
    if (status != DDP_OK)
        return status;
    *ret_task = task_of(comm, operation);
    return has_list(operation)
               ? ddpi_task_set_list(ret_task, operation->buffers, operation->nbuffers, err)
               : DDP_OK;
}

ddp_status ddp_run(ddp_comm *comm, const struct ddp_operation *operation, struct ddp_error *err)
{
    DDPI_UNINITIALIZED struct ddpi_run run;
    ddp_status status = make_task(comm, operation, &run.task, err);
    if (status != DDP_OK)
        return status;
    if (operation->on_done != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a blocking call has no use for a callback: use ddp_start()");
    return ddpi_operate(comm, &run, operation->stream, err);
}

/* ---- requests ---- */

ddp_status ddp_start(ddp_comm *comm, const struct ddp_operation *operation,
                     ddp_request **ret_request, struct ddp_error *err)
{
    struct ddp_request *request = ddpi_calloc(1, sizeof *request);
    *ret_request = NULL;
    if (request == NULL)
        return ddpi_error_nomem(err, sizeof *request);
    ddp_status status = make_task(comm, operation, &request->run.task, err);
    if (status == DDP_OK)
        status = ddpi_task_prepare(&request->run.task, comm->rank, comm->world_size, err);
    if (status == DDP_OK) {
        request->comm = comm;
        request->run.is_request = true;
        request->run.cause = request->cause;
        request->run.ended = operation->on_done;
        request->run.ended_arg = operation->ctx;
        *ret_request = request; /* the callback may look at it */
        status = ddpi_submit_start(comm, &request->run, operation->stream, err);
    }
    if (status == DDP_OK)
        return DDP_OK;
    ddpi_free(request);
    *ret_request = NULL;
    return status;
}

/* Of a request that has ended. */
static ddp_status result_of(const struct ddp_request *request, struct ddp_error *err)
{
    ddp_status status = request->run.status;
    return status == DDP_OK ? DDP_OK : ddpi_error_set(err, status, "%s", request->cause);
}

/* A child of fork() has none of the threads and of the memory that carry a request. */
static ddp_status check_drivable(const struct ddp_request *request, int *ret_done,
                                 struct ddp_error *err)
{
    ddp_status status =
        ddpi_run_is_done(&request->run) ? DDP_OK : ddpi_comm_check_home(request->comm, err);
    if (status != DDP_OK && ret_done != NULL)
        *ret_done = 1;
    return status;
}

ddp_status ddp_request_test(ddp_request *request, int *ret_done, struct ddp_error *err)
{
    ddp_status status = check_drivable(request, ret_done, err);
    if (status != DDP_OK)
        return status;
    bool done = ddpi_run_is_done(&request->run) || ddpi_runs_test(request->comm, &request->run);
    *ret_done = done;
    return done ? result_of(request, err) : DDP_OK;
}

ddp_status ddp_request_wait(ddp_request *request, uint32_t timeout_ms, int *ret_done,
                            struct ddp_error *err)
{
    ddp_status status = check_drivable(request, ret_done, err);
    if (status != DDP_OK)
        return status;
    uint64_t until_ms = timeout_ms != 0 ? ddpi_deadline(ddpi_monotonic_ms(), timeout_ms) : 0;
    bool done =
        ddpi_run_is_done(&request->run) || ddpi_runs_wait(request->comm, &request->run, until_ms);
    if (ret_done != NULL)
        *ret_done = done;
    if (done)
        return result_of(request, err);
    char call[DDPI_CALL_TEXT];
    ddpi_call_describe(&request->run.task.call, call);
    return ddpi_error_set(err, DDP_E_TIMEOUT, "%s of rank %u has not ended in %u ms, and goes on",
                          call, request->comm->rank, timeout_ms);
}

static void free_request(void *request, ddp_status status)
{
    (void)status;
    ddpi_free(request);
}

void ddp_request_free(ddp_request *request)
{
    if (request == NULL)
        return;
    if (ddpi_run_is_done(&request->run) ||
        !ddpi_runs_abandon(request->comm, &request->run, free_request, request))
        ddpi_free(request);
}

/* ---- progress without calls ---- */

ddp_status ddp_comm_start_progress(ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    return status == DDP_OK ? ddpi_runs_start_thread(comm, true, err) : status;
}

ddp_status ddp_comm_get_event_fd(ddp_comm *comm, int *ret_fd, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_runs_count_ends(comm, ret_fd, err);
    return status == DDP_OK ? ddpi_runs_start_thread(comm, true, err) : status;
}
