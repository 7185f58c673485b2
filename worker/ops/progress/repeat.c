/*
 * repeat.c - see progress_impl.h. A communicator owns what is kept, by operation; it is used under
 * the lock of the queue.
 */
#include "progress_impl.h"

#include "communicator.h"
#include "mem.h"
#include "runs.h"

/* Whether the buffers of two calls with the same counts overlap alike: they are as far from each
 * other, or there is at most one. */
static bool overlap_alike(const struct ddpi_task *called, const struct ddpi_task *kept)
{
    if ((called->send == NULL) != (kept->send == NULL) ||
        (called->recv == NULL) != (kept->recv == NULL))
        return false;
    return called->send == NULL || called->recv == NULL ||
           (uintptr_t)called->recv - (uintptr_t)called->send ==
               (uintptr_t)kept->recv - (uintptr_t)kept->send;
}

/* Whether all that the caller has passed is as it was, but for where the buffers are. */
static bool is_like(const struct ddpi_task *called, const struct ddpi_task *kept)
{
    const struct ddpi_call *a = &called->call, *b = &kept->call;
    return a->count == b->count && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           overlap_alike(called, kept);
}

/* What a call may have besides is left to the long way, and so is a pre-multiplied sum, which has a
 * factor or is refused. */
static bool is_plain(const struct ddpi_task *task)
{
    return task->list == NULL && !task->uneven && task->non_finite == NULL &&
           task->call.op != DDP_PREMUL_SUM;
}

/* Whether the next operation may begin at once, on host memory. */
static bool may_begin(const struct ddp_comm *comm)
{
    return ddpi_runs_are_idle(comm) && ddpi_comm_report(comm, NULL) == DDP_OK &&
           !atomic_load_explicit(&comm->finalized, memory_order_relaxed) &&
           ddpi_types_only_host_is_used(&comm->memories);
}

/* Under the lock. */
static ddp_status carry_out(struct ddp_comm *comm, struct ddpi_repeat *repeat,
                            const struct ddpi_task *called)
{
    struct ddpi_run *run = &repeat->run;
    struct ddpi_task *task = &run->task;
    task->send = called->send;
    task->recv = called->recv;
    task->timeout_ms = called->timeout_ms;
    task->bytes_sent = task->bytes_received = 0;
    repeat->lent = true; /* to others the queue is open before this thread has seen the end */
    ddpi_runs_carry_out_locked(comm, run);
    repeat->lent = false;
    return run->status;
}

bool ddpi_repeat_call(struct ddp_comm *comm, const struct ddpi_task *called, ddp_status *ret_status)
{
    struct ddpi_repeat *repeat =
        atomic_load_explicit(&comm->repeats[called->call.operation], memory_order_acquire);
    if (repeat == NULL || !is_plain(called))
        return false;
    pthread_mutex_lock(&comm->runs.lock);
    bool does = !repeat->lent && is_like(called, &repeat->run.task) && may_begin(comm);
    if (does)
        *ret_status = carry_out(comm, repeat, called);
    pthread_mutex_unlock(&comm->runs.lock);
    return does;
}

void ddpi_repeat_keep(struct ddp_comm *comm, const struct ddpi_run *run)
{
    if (run->algorithm->is_brief == NULL || !run->algorithm->is_brief(comm, run) ||
        !is_plain(&run->task) || !ddpi_types_only_host_is_open(&comm->memories))
        return;
    _Atomic(struct ddpi_repeat *) *place = &comm->repeats[run->task.call.operation];
    pthread_mutex_lock(&comm->runs.lock);
    struct ddpi_repeat *repeat = *place;
    if (repeat == NULL)
        repeat = ddpi_calloc(1, sizeof *repeat); /* without it calls go the long way */
    if (repeat != NULL && !repeat->lent) {
        repeat->run = *run;
        repeat->run.is_repeat = true;
        atomic_store_explicit(place, repeat, memory_order_release);
    }
    pthread_mutex_unlock(&comm->runs.lock);
}
