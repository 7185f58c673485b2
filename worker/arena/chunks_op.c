/*
 * chunks_op.c - see chunks_op.h. Owns nothing. Chunks begin at cache lines, so that no line is
 * written by two ranks.
 */
#include "chunks_op.h"

#include "copy_out.h"
#include "reduce.h"

#include <string.h>

enum {
    LINE = 64,
    /* Bytes from which ranks that outnumber the processors gain more by copying less than they lose
     * by waiting for each other; measured with 4 and 8 ranks on two processors. */
    CROWDED_LEAST = 1024 * 1024,
};

bool ddpi_chunks_are_possible(const struct ddpi_arena_op *op)
{
    bool pays = !ddpi_arena_is_crowded(op->arena) || op->longest >= CROWDED_LEAST;
    return op->task->call.operation == DDPI_ALL_REDUCE && op->task->list == NULL && pays &&
           ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST;
}

/* In bytes, of a round that moves @len of them. */
static struct ddpi_chunk chunk_of(const struct ddpi_arena_op *op, size_t len, uint32_t rank)
{
    size_t lines = (len + LINE - 1) / LINE;
    struct ddpi_chunk chunk = ddpi_ring_chunk(lines, ddpi_arena_ranks(op->arena), rank);
    size_t first = chunk.first * LINE < len ? chunk.first * LINE : len;
    size_t end = (chunk.first + chunk.count) * LINE;
    return (struct ddpi_chunk){.first = first, .count = (end < len ? end : len) - first};
}

static uint8_t *piece_of(const struct ddpi_arena_op *op, uint64_t round, uint32_t rank)
{
    return ddpi_arena_piece(op->arena, round, rank, op->room);
}

/* Of a pre-multiplied reduction the factor is applied on the way in. */
static void copy_in(const struct ddpi_task *task, uint8_t *to, const uint8_t *from, size_t len)
{
    if (task->factor != 1)
        ddpi_scale(to, from, len / task->element_size, task->call.dtype, task->factor);
    else
        memcpy(to, from, len);
}

void ddpi_chunks_copy_in(const struct ddpi_arena_op *op, size_t len)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    struct ddpi_chunk own = chunk_of(op, len, me);
    size_t end = own.first + own.count;
    const uint8_t *from = op->task->send + op->done;
    uint8_t *to = piece_of(op, op->round, me);
    copy_in(op->task, to, from, own.first);
    copy_in(op->task, to + end, from + end, len - end);
    op->task->bytes_sent += len; /* counted as on every way */
}

void ddpi_chunks_reduce(const struct ddpi_arena_op *op, size_t len)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    struct ddpi_chunk own = chunk_of(op, len, me);
    double factors[DDPI_REDUCE_MOST];
    bool found = false;
    struct ddpi_reduction work = {
        .out = {task->recv + op->done + own.first, piece_of(op, op->round + 1, me) + own.first},
        .nin = ddpi_arena_ranks(op->arena),
        .nout = 2,
        .count = own.count / task->element_size,
        .dtype = task->call.dtype,
        .op = task->call.op,
        .divisor = task->call.op == DDP_AVERAGE ? ddpi_arena_ranks(op->arena) : 1,
        .non_finite = task->call.finite_check ? &found : NULL};
    for (uint32_t rank = 0; rank < work.nin; rank++) {
        work.in[rank] = piece_of(op, op->round, rank) + own.first;
        factors[rank] = 1;
    }
    work.in[me] = task->send + op->done + own.first;
    factors[me] = task->factor;
    if (task->factor != 1)
        work.factor = factors;
    ddpi_reduce_many(&work);
    if (found)
        ddpi_arena_note_non_finite(op->arena, op->round + 1, DDPI_RESULT_OF_ALL);
}

void ddpi_chunks_copy_out(const struct ddpi_arena_op *op, size_t len)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    bool in_place = task->send == task->recv; /* so it is in the caches */
    size_t all = task->count * task->element_size * ddpi_arena_ranks(op->arena);
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_chunk chunk = chunk_of(op, len, rank);
        uint8_t *to = task->recv + op->done + chunk.first;
        const uint8_t *from = piece_of(op, op->round, rank) + chunk.first;
        if (rank != me && all > DDPI_ARENA_STREAM && !in_place)
            ddpi_copy_out(to, from, chunk.count);
        else if (rank != me)
            memcpy(to, from, chunk.count);
    }
    op->task->bytes_received += len;
}
