/*
 * chunks_op.c - see chunks_op.h. Owns nothing. Chunks begin at cache lines, so that no line is
 * written by two ranks.
 */
#include "chunks_op.h"

#include "reduce.h"
#include "stream_copy.h"
#include "way_op.h"

enum {
    LINE = 64,
    TILE = 16 * 1024, /* bytes of a result that stay in a first-level cache */
    /* Bytes from which ranks that outnumber the processors gain more by copying less than they lose
     * by waiting for each other; measured with 4 and 8 ranks on two processors. */
    CROWDED_LEAST = 1024 * 1024,
    /* Bytes that the buffers of a list have on average from which it pays to reduce each where it
     * is, and not the piece that all were copied to. */
    LIST_LEAST = 4 * 1024,
};

static bool has_long_buffers(const struct ddpi_arena_op *op)
{
    return op->task->list == NULL || op->longest >= (size_t)LIST_LEAST * op->task->call.buffers;
}

bool ddpi_chunks_are_possible(const struct ddpi_arena_op *op)
{
    bool pays = !ddpi_arena_is_crowded(op->arena) || op->longest >= CROWDED_LEAST;
    return op->task->call.operation == DDPI_ALL_REDUCE && pays && has_long_buffers(op) &&
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

/* ---- the bytes of a round, in one buffer or in those of a list ---- */

/* Where byte @at of the round is, if the operation has a list. */
static struct ddpi_spot spot_of(const struct ddpi_arena_op *op, size_t at)
{
    struct ddpi_spot spot = op->spot;
    if (op->task->list != NULL) {
        struct ddpi_segments segments = ddpi_task_segments(op->task);
        ddpi_segments_skip(&segments, &spot, at);
    }
    return spot;
}

/* The bytes from @at on, at most @most, that lie in one buffer; @spot is behind them afterwards. */
static struct ddpi_segment next_segment(const struct ddpi_arena_op *op, struct ddpi_spot *spot,
                                        size_t at, size_t most)
{
    const struct ddpi_task *task = op->task;
    struct ddpi_segment segment = {.len = most};
    if (task->list != NULL) {
        struct ddpi_segments segments = ddpi_task_segments(task);
        (void)ddpi_segments_next(&segments, spot, most, &segment);
    } else {
        segment.send = task->send + op->done + at;
        segment.recv = task->recv + op->done + at;
    }
    return segment;
}

static void copy_range_in(const struct ddpi_arena_op *op, uint8_t *piece, size_t from, size_t to)
{
    struct ddpi_spot spot = spot_of(op, from);
    while (from < to) {
        struct ddpi_segment segment = next_segment(op, &spot, from, to - from);
        ddpi_way_copy_in(op, piece + from, segment.send, segment.len);
        from += segment.len;
    }
}

/* What was sent from where it is received is in the caches. */
static void copy_range_out(const struct ddpi_arena_op *op, const uint8_t *piece, size_t from,
                           size_t to)
{
    struct ddpi_spot spot = spot_of(op, from);
    while (from < to) {
        struct ddpi_segment segment = next_segment(op, &spot, from, to - from);
        ddpi_way_copy_out(op, segment.recv, piece + from, segment.len,
                          segment.send == segment.recv);
        from += segment.len;
    }
}

/* ---- a round ---- */

void ddpi_chunks_copy_in(const struct ddpi_arena_op *op, size_t len)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    struct ddpi_chunk own = chunk_of(op, len, me);
    uint8_t *piece = piece_of(op, op->round, me);
    copy_range_in(op, piece, 0, own.first);
    copy_range_in(op, piece, own.first + own.count, len);
    op->task->bytes_sent += len; /* counted as on every way */
}

/* Reduce @segment, which is at @at, to this rank's buffer and to its piece. */
static void reduce_tile(const struct ddpi_arena_op *op, struct ddpi_reduction *work, size_t at,
                        const struct ddpi_segment *segment)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    uint8_t *shown = piece_of(op, op->round + 1, me) + at;
    for (uint32_t rank = 0; rank < work->nin; rank++)
        work->in[rank] = piece_of(op, op->round, rank) + at;
    work->in[me] = segment->send;
    work->out[0] = segment->recv;
    work->out[1] = shown;
    work->nout = ddpi_way_is_streamed(op) ? 1 : 2;
    work->count = segment->len / op->task->element_size;
    ddpi_reduce_many(work);
    if (ddpi_way_is_streamed(op))
        ddpi_stream_copy(shown, segment->recv, segment->len);
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
    struct ddpi_spot spot = spot_of(op, own.first);
    for (size_t done = 0; done < own.count;) {
        size_t left = own.count - done, at = own.first + done;
        struct ddpi_segment segment = next_segment(op, &spot, at, left < TILE ? left : TILE);
        reduce_tile(op, &work, at, &segment);
        done += segment.len;
    }
    if (found)
        ddpi_arena_note_non_finite(op->arena, op->round + 1, DDPI_RESULT_OF_ALL);
}

void ddpi_chunks_copy_out(const struct ddpi_arena_op *op, size_t len)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_chunk chunk = chunk_of(op, len, rank);
        if (rank != me)
            copy_range_out(op, piece_of(op, op->round, rank), chunk.first,
                           chunk.first + chunk.count);
    }
    op->task->bytes_received += len;
}
