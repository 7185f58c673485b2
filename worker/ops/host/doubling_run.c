/*
 * doubling_run.c - all_reduce by recursive doubling. The partial result is in the receive buffer;
 * that of the peer comes to the communicator's scratch memory. A run owns the exchange of the step
 * that is under way.
 */
#include "host_algorithms.h"

#include "doubling.h"
#include "exchange.h"
#include "reduce.h"
#include "ring_compare.h"

#include <string.h>

/* The state of a run. */
struct doubling_run {
    struct ddpi_ring_compare compare;
    struct ddpi_exchange exchange;
    struct ddpi_doubling_step now;
    uint32_t step, steps;
    uint64_t sent, received; /* in the steps before */
};
DDPI_RUN_STATE_FITS(struct doubling_run);

static struct doubling_run *doubling_of(struct ddpi_run *run)
{
    return (struct doubling_run *)(void *)run->state;
}

/* Begin the first step, from the current one on, in which this rank takes part. */
static ddp_status doubling_step_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct doubling_run *doubling = doubling_of(run);
    struct ddpi_call call = run->task.call;
    struct ddpi_exchange_piece pieces[2];
    size_t len = run->task.count * run->task.element_size;
    unsigned count = 0;
    for (; doubling->step < doubling->steps; doubling->step++) {
        doubling->now = ddpi_doubling_step(comm->rank, comm->world_size, doubling->step);
        if (doubling->now.sends || doubling->now.receives)
            break;
    }
    if (doubling->step == doubling->steps)
        return DDP_OK;
    uint8_t *into = doubling->now.reduces ? comm->scratch : run->task.recv;
    call.message_class = DDPI_PIECE;
    if (doubling->now.sends)
        pieces[count++] = (struct ddpi_exchange_piece){
            .peer = doubling->now.peer, .sends = true, .bytes = run->task.recv, .len = len};
    if (doubling->now.receives)
        pieces[count++] =
            (struct ddpi_exchange_piece){.peer = doubling->now.peer, .bytes = into, .len = len};
    return ddpi_exchange_begin(comm, &doubling->exchange, &call, pieces, count);
}

static ddp_status doubling_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct doubling_run *doubling = doubling_of(run);
    const struct ddpi_task *task = &run->task;
    *doubling = (struct doubling_run){.steps = ddpi_doubling_steps(comm->world_size)};
    ddpi_ring_compare_begin(&doubling->compare, &task->call);
    if (task->factor != 1)
        ddpi_scale(task->recv, task->send, task->count, task->call.dtype, task->factor);
    else if (task->count > 0 && task->recv != task->send)
        memcpy(task->recv, task->send, task->count * task->element_size);
    return doubling_step_begin(comm, run);
}

/* A rank of a pair has received the result. */
static void doubling_check(struct ddpi_task *task)
{
    if (task->call.finite_check)
        task->found_non_finite = ddpi_has_non_finite(task->recv, task->count, task->call.dtype);
}

/* Both partial results are here, and the peer has, or will get, this rank's. */
static void doubling_combine(const struct ddp_comm *comm, struct ddpi_run *run)
{
    const struct ddpi_doubling_step *now = &doubling_of(run)->now;
    struct ddpi_task *task = &run->task;
    bool divides = now->finishes && task->call.op == DDP_AVERAGE;
    bool checks = now->finishes && task->call.finite_check;
    if (now->receives && !now->reduces)
        doubling_check(task);
    if (!now->reduces || task->count == 0)
        return;
    ddpi_reduce_many(
        &(struct ddpi_reduction){.in = {now->own_first ? task->recv : comm->scratch,
                                        now->own_first ? comm->scratch : task->recv},
                                 .out = {task->recv},
                                 .nin = 2,
                                 .nout = 1,
                                 .count = task->count,
                                 .dtype = task->call.dtype,
                                 .op = task->call.op,
                                 .divisor = divides ? comm->world_size : 1,
                                 .non_finite = checks ? &task->found_non_finite : NULL});
}

static ddp_status doubling_step_end(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct doubling_run *doubling = doubling_of(run);
    doubling->sent += run->task.bytes_sent; /* of this exchange */
    doubling->received += run->task.bytes_received;
    run->task.bytes_sent = doubling->sent;
    run->task.bytes_received = doubling->received;
    ddpi_exchange_end(comm, &doubling->exchange);
    doubling_combine(comm, run);
    doubling->step++;
    return doubling_step_begin(comm, run);
}

static ddp_status doubling_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                   enum ddpi_movement *ret_movement)
{
    struct doubling_run *doubling = doubling_of(run);
    enum ddpi_movement movement = DDPI_IDLE;
    bool moved = false;
    ddp_status status =
        ddpi_ring_compare_advance(comm, &doubling->compare, &run->task.call, &moved);
    if (status == DDP_OK && doubling->step < doubling->steps)
        status = ddpi_exchange_advance(comm, &doubling->exchange, run, &movement);
    if (status == DDP_OK && movement == DDPI_COMPLETE)
        status = doubling_step_end(comm, run);
    *ret_movement = moved || movement != DDPI_IDLE ? DDPI_MOVED : DDPI_IDLE;
    if (doubling->step == doubling->steps && ddpi_ring_compare_is_done(&doubling->compare))
        *ret_movement = DDPI_COMPLETE;
    return status;
}

static unsigned doubling_most_needs(const struct ddpi_run *run)
{
    (void)run;
    return DDPI_RING_EDGES + 2;
}

static unsigned doubling_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                               struct ddpi_need *needs)
{
    const struct doubling_run *doubling = doubling_of(run);
    unsigned count = ddpi_ring_compare_needs(comm, &doubling->compare, needs);
    return count + ddpi_exchange_needs(comm, &doubling->exchange, needs + count);
}

static void doubling_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    (void)status;
    if (run->begun)
        ddpi_exchange_end(comm, &doubling_of(run)->exchange);
}

const struct ddpi_algorithm ddpi_doubling_algorithm = {.name = "doubling",
                                                       .uses_ring = true,
                                                       .begin = doubling_begin,
                                                       .advance = doubling_advance,
                                                       .most_needs = doubling_most_needs,
                                                       .needs = doubling_needs,
                                                       .end = doubling_end};
