/*
 * counts_op.c - see counts_op.h. Owns nothing.
 */
#include "counts_op.h"

/* For each rank what is sent to it, what is expected of it, and the longest part, in bytes. */
struct counts {
    uint64_t longest;
    struct {
        uint64_t sent, expected;
    } with[];
};

static size_t bytes_to(const struct ddpi_task *task, uint32_t me, uint32_t peer)
{
    struct ddpi_piece piece;
    return ddpi_task_to_peer(task, me, peer, &piece) ? piece.len : 0;
}

static size_t bytes_from(const struct ddpi_task *task, uint32_t me, uint32_t peer)
{
    struct ddpi_piece piece;
    return ddpi_task_from_peer(task, me, peer, &piece) ? piece.len : 0;
}

void ddpi_counts_show(const struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    struct counts *counts = (struct counts *)(void *)ddpi_arena_op_piece(op, me);
    counts->longest = op->longest;
    for (uint32_t peer = 0; peer < ddpi_arena_ranks(op->arena); peer++) {
        counts->with[peer].sent = bytes_to(op->task, me, peer);
        counts->with[peer].expected = bytes_from(op->task, me, peer);
    }
}

bool ddpi_counts_take(struct ddpi_arena_op *op, uint32_t *ret_rank)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    for (uint32_t peer = 0; peer < ddpi_arena_ranks(op->arena); peer++) {
        const struct counts *counts =
            (const struct counts *)(const void *)ddpi_arena_op_piece(op, peer);
        *ret_rank = peer;
        if (counts->with[me].sent != bytes_from(op->task, me, peer) ||
            counts->with[me].expected != bytes_to(op->task, me, peer))
            return false;
        uint64_t longest = counts->longest;
        if (longest > op->longest && longest <= PTRDIFF_MAX)
            op->longest = longest;
    }
    op->counted = true;
    return true;
}
