/*
 * task.c - what each operation takes: one row for each. Checks the arguments of a call. Pure.
 */
#include "task.h"

#include "error.h"

static const struct shape {
    enum ddpi_ring_kind ring;
    bool reduces;      /* it has a reduction */
    bool rooted;       /* it has a root */
    bool message;      /* between two ranks, of which call.root is the other one */
    bool sends_all;    /* the send buffer has a part for each rank */
    bool receives_all; /* the receive buffer has a part of each rank */
    const char *in_place;
} shapes[] = {
    [DDPI_JOIN] = {.ring = DDPI_RING_ALL_GATHER, .receives_all = true},
    [DDPI_BARRIER] = {.ring = DDPI_RING_ALL_GATHER, .receives_all = true},
    [DDPI_BROADCAST] = {.ring = DDPI_RING_BROADCAST, .rooted = true},
    [DDPI_ALL_REDUCE] = {.ring = DDPI_RING_ALL_REDUCE,
                         .reduces = true,
                         .in_place = "they must be equal"},
    [DDPI_REDUCE] = {.ring = DDPI_RING_REDUCE,
                     .reduces = true,
                     .rooted = true,
                     .in_place = "they must be equal"},
    [DDPI_ALL_GATHER] = {.ring = DDPI_RING_ALL_GATHER,
                         .receives_all = true,
                         .in_place = "send must be this rank's part of recv"},
    [DDPI_REDUCE_SCATTER] = {.ring = DDPI_RING_REDUCE_SCATTER,
                             .reduces = true,
                             .sends_all = true,
                             .in_place = "recv must be this rank's part of send"},
    [DDPI_SEND] = {.ring = DDPI_RING_BROADCAST, .message = true},
    [DDPI_RECV] = {.ring = DDPI_RING_BROADCAST, .message = true},
};

static const struct shape *shape_of(const struct ddpi_call *call)
{
    return &shapes[call->operation];
}

bool ddpi_call_reduces(const struct ddpi_call *call)
{
    return shape_of(call)->reduces;
}

bool ddpi_call_is_message(const struct ddpi_call *call)
{
    return shape_of(call)->message;
}

static ddp_status check_ranks(const struct ddpi_call *call, uint32_t rank, uint32_t world_size,
                              struct ddp_error *err)
{
    const struct shape *shape = shape_of(call);
    if ((shape->rooted || shape->message) && call->root >= world_size)
        return ddpi_error_set(err, DDP_E_INVALID, "%s %u does not exist in a world of %u ranks",
                              shape->rooted ? "root" : "rank", call->root, world_size);
    if (shape->message && call->root == rank)
        return ddpi_error_set(err, DDP_E_INVALID, "rank %u cannot send to or receive from itself",
                              rank);
    return DDP_OK;
}

/* Sets the sizes of @task, too. */
static ddp_status check_call(struct ddpi_task *task, uint32_t rank, uint32_t world_size,
                             struct ddp_error *err)
{
    const struct ddpi_call *call = &task->call;
    const struct shape *shape = shape_of(call);
    size_t size = ddp_dtype_size(call->dtype), bytes;
    uint32_t parts = shape->sends_all || shape->receives_all ? world_size : 1;
    if (size == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not an element type", (int)call->dtype);
    if (shape->reduces && (unsigned)call->op > DDP_PRODUCT)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not a reduction", (int)call->op);
    ddp_status status = check_ranks(call, rank, world_size, err);
    if (status != DDP_OK)
        return status;
    if (__builtin_mul_overflow(call->count, parts, &task->count) ||
        __builtin_mul_overflow(task->count, size, &bytes) || bytes > PTRDIFF_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "%zu elements of %zu bytes%s are too many",
                              call->count, size, parts > 1 ? " for each rank" : "");
    task->element_size = size;
    return DDP_OK;
}

/* Where in a buffer with @parts for all ranks this rank's part is. */
static uintptr_t own_part(const void *buffer, bool parts, uint32_t rank, size_t len)
{
    return (uintptr_t)buffer + (parts ? rank * len : 0);
}

/* The buffers are used in place, or do not overlap. */
static bool buffers_fit(const struct ddpi_task *task, uint32_t rank)
{
    const struct shape *shape = shape_of(&task->call);
    size_t len = task->call.count * task->element_size, all = task->count * task->element_size;
    if (own_part(task->send, shape->sends_all, rank, len) ==
        own_part(task->recv, shape->receives_all, rank, len))
        return true;
    uintptr_t send = (uintptr_t)task->send, recv = (uintptr_t)task->recv;
    return send < recv ? recv - send >= (shape->sends_all ? all : len)
                       : send - recv >= (shape->receives_all ? all : len);
}

static ddp_status check_buffers(const struct ddpi_task *task, uint32_t rank, struct ddp_error *err)
{
    const struct ddpi_call *call = &task->call;
    if (task->count == 0)
        return DDP_OK;
    bool sends = call->operation != DDPI_RECV;
    bool receives =
        call->operation != DDPI_SEND && (call->operation != DDPI_REDUCE || rank == call->root);
    if ((sends && task->send == NULL) || (receives && task->recv == NULL))
        return ddpi_error_set(err, DDP_E_INVALID, "the buffer of %zu elements is NULL",
                              call->count);
    if (sends && receives && !buffers_fit(task, rank))
        return ddpi_error_set(err, DDP_E_INVALID, "send and receive buffer overlap; in place, %s",
                              shape_of(call)->in_place);
    return DDP_OK;
}

/* A message is a broadcast round a ring of two. */
static struct ddpi_ring ring_of(const struct ddpi_call *call, uint32_t rank, uint32_t world_size)
{
    if (ddpi_call_is_message(call))
        return (struct ddpi_ring){
            .kind = DDPI_RING_BROADCAST, .rank = call->operation == DDPI_SEND ? 0 : 1, .nranks = 2};
    return (struct ddpi_ring){
        .kind = shape_of(call)->ring, .rank = rank, .nranks = world_size, .root = call->root};
}

ddp_status ddpi_task_prepare(struct ddpi_task *task, uint32_t rank, uint32_t world_size,
                             struct ddp_error *err)
{
    bool has_buffers = task->call.operation != DDPI_BARRIER && task->call.operation != DDPI_JOIN;
    ddp_status status = check_call(task, rank, world_size, err);
    if (status == DDP_OK && has_buffers)
        status = check_buffers(task, rank, err);
    if (status == DDP_OK)
        task->ring = ring_of(&task->call, rank, world_size);
    return status;
}
