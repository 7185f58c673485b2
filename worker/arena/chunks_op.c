/*
 * chunks_op.c - see chunks_op.h. Owns nothing. Chunks begin at cache lines, so that no line is
 * written by two ranks.
 */
#include "chunks_op.h"

#include "reduce.h"
#include "stream_copy.h"

#include <string.h>

enum {
    LINE = 64,
    TILE = 16 * 1024, /* bytes of a result that stay in a first-level cache */
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
static void copy_in(const struct ddpi_arena_op *op, uint8_t *to, const uint8_t *from, size_t len)
{
    const struct ddpi_task *task = op->task;
    if (task->factor != 1)
        ddpi_scale(to, from, len / task->element_size, task->call.dtype, task->factor);
    else if (op->way.path == DDPI_COPY_STREAMED)
        ddpi_stream_copy(to, from, len);
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
    copy_in(op, to, from, own.first);
    copy_in(op, to + end, from + end, len - end);
    op->task->bytes_sent += len; /* counted as on every way */
}

/* Reduce @len bytes at @at to this rank's buffer and to its piece. */
static void reduce_tile(const struct ddpi_arena_op *op, struct ddpi_reduction *work, size_t at,
                        size_t len)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    uint8_t *result = task->recv + op->done + at, *shown = piece_of(op, op->round + 1, me) + at;
    for (uint32_t rank = 0; rank < work->nin; rank++)
        work->in[rank] = piece_of(op, op->round, rank) + at;
    work->in[me] = task->send + op->done + at;
    work->out[0] = result;
    work->out[1] = shown;
    work->nout = op->way.path == DDPI_COPY_STREAMED ? 1 : 2;
    work->count = len / task->element_size;
    ddpi_reduce_many(work);
    if (op->way.path == DDPI_COPY_STREAMED)
        ddpi_stream_copy(shown, result, len);
}

void ddpi_chunks_reduce(const struct ddpi_arena_op *op, size_t len)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    struct ddpi_chunk own = chunk_of(op, len, me);
    double factors[DDPI_REDUCE_MOST];
    bool found = false;
    struct ddpi_reduction work = {
        .nin = ddpi_arena_ranks(op->arena),
        .dtype = task->call.dtype,
        .op = task->call.op,
        .divisor = task->call.op == DDP_AVERAGE ? ddpi_arena_ranks(op->arena) : 1,
        .non_finite = task->call.finite_check ? &found : NULL};
    for (uint32_t rank = 0; rank < work.nin; rank++)
        factors[rank] = rank == me ? task->factor : 1;
    if (task->factor != 1)
        work.factor = factors;
    for (size_t done = 0; done < own.count; done += TILE) {
        size_t left = own.count - done;
        reduce_tile(op, &work, own.first + done, left < TILE ? left : TILE);
    }
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
            ddpi_stream_copy(to, from, chunk.count);
        else if (rank != me)
            memcpy(to, from, chunk.count);
    }
    op->task->bytes_received += len;
}
