/*
 * chunks_op.c - an all_reduce in which every rank reduces one chunk of what a round moves
 * (arena_method.h): where ranks have a processor each, or many bytes, and the buffers of a list are
 * not short. A rank copies in what the others reduce, and reads its own chunk where it is. Then all
 * meet again, and it copies out what the others have reduced. So of N bytes it copies N(R-1)/R in
 * and out, not N; but a rank that does not run keeps the others waiting.
 *
 * Chunks begin at cache lines, so that no line is written by two ranks. Owns nothing.
 */
#include "arena_method.h"
#include "copy_way.h"
#include "reduce.h"
#include "slots.h"
#include "stream_copy.h"

enum {
    LINE = 64,
    TILE = 16 * 1024, /* bytes of a result that stay in a first-level cache */
    /* Bytes from which ranks that outnumber the processors gain more by copying less than they lose
     * by waiting for each other; measured with 4 and 8 ranks on two processors. */
    CROWDED_LEAST = 1024 * 1024,
    /* Average bytes of the buffers of a list from which it pays to reduce each in place, instead of
     * packing them first. */
    LIST_LEAST = 4 * 1024,
};

static bool has_long_buffers(const struct ddpi_arena_op *op)
{
    return op->task->list == NULL || op->longest >= (size_t)LIST_LEAST * op->task->call.buffers;
}

bool ddpi_chunks_are_chosen(const struct ddpi_arena_op *op)
{
    bool pays = !ddpi_arena_is_crowded(op->arena) || op->longest >= CROWDED_LEAST;
    return op->task->call.operation == DDPI_ALL_REDUCE && pays && has_long_buffers(op) &&
           ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST;
}

/* The chunk of @rank in a round of @len bytes: its first byte and their number, not elements. */
static struct ddpi_chunk chunk_of(const struct ddpi_arena_op *op, size_t len, uint32_t rank)
{
    size_t lines = (len + LINE - 1) / LINE;
    struct ddpi_chunk chunk = ddpi_ring_chunk(lines, ddpi_arena_ranks(op->arena), rank);
    size_t first = chunk.first * LINE < len ? chunk.first * LINE : len;
    size_t end = (chunk.first + chunk.count) * LINE;
    return (struct ddpi_chunk){.first = first, .count = (end < len ? end : len) - first};
}

static uint8_t *slot_of(const struct ddpi_arena_op *op, uint64_t round, uint32_t rank)
{
    return ddpi_arena_slot(op->arena, round, rank, op->slots.kind);
}

/* ---- the bytes of a round, in one buffer or in those of a list ---- */

/* Where byte @at of the round is, if the operation has a list. */
static struct ddpi_spot spot_of(const struct ddpi_arena_op *op, size_t at)
{
    struct ddpi_spot spot = op->slots.spot;
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
        segment.send = task->send + op->slots.done + at;
        segment.recv = task->recv + op->slots.done + at;
    }
    return segment;
}

static void copy_range_in(const struct ddpi_arena_op *op, uint8_t *slot, size_t from, size_t to)
{
    struct ddpi_spot spot = spot_of(op, from);
    while (from < to) {
        struct ddpi_segment segment = next_segment(op, &spot, from, to - from);
        ddpi_way_copy_in(op, slot + from, segment.send, segment.len);
        from += segment.len;
    }
}

/* In place, what is written here was read to be copied in, so it is in the caches. */
static void copy_range_out(const struct ddpi_arena_op *op, const uint8_t *slot, size_t from,
                           size_t to)
{
    struct ddpi_spot spot = spot_of(op, from);
    while (from < to) {
        struct ddpi_segment segment = next_segment(op, &spot, from, to - from);
        ddpi_way_copy_out(op, segment.recv, slot + from, segment.len, segment.send == segment.recv);
        from += segment.len;
    }
}

/* ---- a round ---- */

static enum ddpi_arena_step copy_in(struct ddpi_arena_op *op, struct ddp_error *err)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    if (op->slots.kind == DDPI_SLOT_LARGE && ddpi_arena_grow(op->arena, err) != DDP_OK)
        return DDPI_ARENA_STEP_NO_ROOM;
    ddpi_arena_op_enter_round(op);
    size_t len = ddpi_slots_len(op);
    struct ddpi_chunk own = chunk_of(op, len, me);
    uint8_t *slot = slot_of(op, op->round, me);
    copy_range_in(op, slot, 0, own.first);
    copy_range_in(op, slot, own.first + own.count, len);
    return ddpi_arena_op_arrive(op);
}

/* Reduce @segment, which is at @at, to this rank's buffer and to its slot of the next round. */
static void reduce_tile(const struct ddpi_arena_op *op, struct ddpi_reduction *work, size_t at,
                        const struct ddpi_segment *segment)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    /* The next round has the other half of the slots, which nobody reads any more. */
    uint8_t *shown = slot_of(op, op->round + 1, me) + at;
    for (uint32_t rank = 0; rank < work->nin; rank++)
        work->in[rank] = slot_of(op, op->round, rank) + at;
    work->in[me] = segment->send;
    work->out[0] = segment->recv;
    work->out[1] = shown;
    work->nout = ddpi_way_is_streamed(op) ? 1 : 2;
    work->count = segment->len / op->task->element_size;
    ddpi_reduce_many(work);
    if (ddpi_way_is_streamed(op))
        ddpi_stream_copy(shown, segment->recv, segment->len);
}

static enum ddpi_arena_step reduce_chunk(struct ddpi_arena_op *op, struct ddp_error *err)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena), ranks = ddpi_arena_ranks(op->arena);
    struct ddpi_chunk own = chunk_of(op, ddpi_slots_len(op), me);
    double factors[DDPI_REDUCE_MOST];
    bool found = false;
    struct ddpi_reduction work = {.nin = ranks,
                                  .dtype = task->call.dtype,
                                  .op = task->call.op,
                                  .divisor = task->call.op == DDP_AVERAGE ? ranks : 1,
                                  .factor = task->factor != 1 ? factors : NULL,
                                  .non_finite = task->call.finite_check ? &found : NULL};
    (void)err;
    for (uint32_t rank = 0; rank < ranks; rank++) /* others have multiplied theirs on the way in */
        factors[rank] = rank == me ? task->factor : 1;
    struct ddpi_spot spot = spot_of(op, own.first);
    for (size_t done = 0; done < own.count;) {
        size_t left = own.count - done, at = own.first + done;
        struct ddpi_segment segment = next_segment(op, &spot, at, left < TILE ? left : TILE);
        reduce_tile(op, &work, at, &segment);
        done += segment.len;
    }
    ddpi_arena_op_enter_round(op);
    if (found)
        ddpi_arena_note_non_finite(op->arena, op->round, DDPI_ARENA_LINE_OF_ALL);
    return ddpi_arena_op_arrive(op);
}

static enum ddpi_arena_step copy_out(struct ddpi_arena_op *op, struct ddp_error *err)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    size_t len = ddpi_slots_len(op);
    (void)err;
    if (op->task->call.finite_check &&
        ddpi_arena_is_non_finite(op->arena, op->round, DDPI_ARENA_LINE_OF_ALL))
        op->task->found_non_finite = true;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_chunk chunk = chunk_of(op, len, rank);
        if (rank != me)
            copy_range_out(op, slot_of(op, op->round, rank), chunk.first,
                           chunk.first + chunk.count);
    }
    return ddpi_slots_move_on(op) ? DDPI_ARENA_STEP_NEXT : DDPI_ARENA_STEP_OVER;
}

const struct ddpi_arena_method ddpi_chunks_method = {.begin = ddpi_slots_begin,
                                                     .steps = {copy_in, reduce_chunk, copy_out}};
