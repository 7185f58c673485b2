/*
 * counts_op.c - the first round of an operation of which each rank knows only its own counts
 * (arena_method.h): it tells each other one how many bytes it sends to it and expects of it. Then
 * op->longest is the same on all ranks. Owns nothing.
 */
#include "arena_method.h"

/* For each rank what is sent to it, what is expected of it, and the longest part, in bytes. */
struct counts {
    uint64_t longest;
    struct {
        uint64_t sent, expected;
    } with[];
};

static struct counts *counts_of(const struct ddpi_arena_op *op, uint32_t rank)
{
    return (struct counts *)(void *)ddpi_arena_slot(op->arena, op->round, rank, DDPI_SLOT_SMALL);
}

static size_t bytes_to(const struct ddpi_task *task, uint32_t me, uint32_t peer)
{
    struct ddpi_range piece;
    return ddpi_task_to_peer(task, me, peer, &piece) ? piece.len : 0;
}

static size_t bytes_from(const struct ddpi_task *task, uint32_t me, uint32_t peer)
{
    struct ddpi_range piece;
    return ddpi_task_from_peer(task, me, peer, &piece) ? piece.len : 0;
}

static enum ddpi_arena_step show(struct ddpi_arena_op *op, struct ddp_error *err)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    (void)err;
    ddpi_arena_op_enter_round(op);
    struct counts *counts = counts_of(op, me);
    counts->longest = op->longest;
    for (uint32_t peer = 0; peer < ddpi_arena_ranks(op->arena); peer++) {
        counts->with[peer].sent = bytes_to(op->task, me, peer);
        counts->with[peer].expected = bytes_from(op->task, me, peer);
    }
    return ddpi_arena_op_arrive(op);
}

static enum ddpi_arena_step compare(struct ddpi_arena_op *op, struct ddp_error *err)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    (void)err;
    for (uint32_t peer = 0; peer < ddpi_arena_ranks(op->arena); peer++) {
        const struct counts *counts = counts_of(op, peer);
        op->odd = peer;
        if (counts->with[me].sent != bytes_from(op->task, me, peer) ||
            counts->with[me].expected != bytes_to(op->task, me, peer))
            return DDPI_ARENA_STEP_MISMATCH;
        uint64_t longest = counts->longest;
        if (longest > op->longest && longest <= PTRDIFF_MAX)
            op->longest = longest;
    }
    return DDPI_ARENA_STEP_SWITCH;
}

const struct ddpi_arena_method ddpi_counts_method = {.steps = {show, compare}};
