/*
 * pieces_op.c - see pieces_op.h. Owns nothing.
 */
#include "pieces_op.h"

#include "chunks_op.h"
#include "reduce.h"
#include "reduce_any.h"
#include "way_op.h"

enum {
    SHORT = 8 * 1024,  /* bytes of all ranks up to which each reduces for itself */
    SHARE = 32 * 1024, /* bytes of the result that a rank reduces at a time */
};

static size_t at_most(size_t size, size_t most)
{
    return size < most ? size : most;
}

/* The bytes of a part of @len bytes that belong to this round. */
static size_t stretch(const struct ddpi_arena_op *op, size_t len)
{
    size_t room = ddpi_arena_op_row(op)->in == DDPI_PARTS ? op->block : op->piece;
    return len > op->done ? at_most(len - op->done, room) : 0;
}

static struct ddpi_piece part_at(const struct ddpi_arena_op *op, const void *buffer,
                                 const struct ddpi_parts *parts, uint32_t rank)
{
    struct ddpi_chunk part = ddpi_parts_at(parts, op->task->own, rank);
    size_t size = op->task->element_size;
    return (struct ddpi_piece){(uint8_t *)((uintptr_t)buffer + part.first * size + op->done),
                               stretch(op, part.count * size)};
}

static struct ddpi_piece whole_at(const struct ddpi_arena_op *op, const void *buffer)
{
    return (struct ddpi_piece){(uint8_t *)((uintptr_t)buffer + op->done),
                               stretch(op, op->task->own * op->task->element_size)};
}

size_t ddpi_pieces_len(const struct ddpi_arena_op *op)
{
    return whole_at(op, NULL).len;
}

static void copy_in(const struct ddpi_arena_op *op, uint8_t *to, const struct ddpi_piece *from)
{
    if (from->len > 0)
        ddpi_way_copy_in(op, to, from->bytes, from->len);
    op->task->bytes_sent += from->len;
}

/* Whether a rank that reduces its own part reads that where it is, and nobody else reads it. */
static bool reads_own_part(const struct ddpi_arena_op *op)
{
    return ddpi_arena_op_row(op)->reduces && op->task->factor == 1 &&
           ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST;
}

/* From the buffers of a list, which have the bytes of this round one after the other. */
static void copy_list_in(const struct ddpi_arena_op *op, uint8_t *to)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    struct ddpi_spot spot = op->spot;
    struct ddpi_segment segment;
    size_t left = ddpi_pieces_len(op);
    for (; ddpi_segments_next(&segments, &spot, left, &segment); left -= segment.len) {
        struct ddpi_piece from = {(uint8_t *)(uintptr_t)segment.send, segment.len};
        copy_in(op, to, &from);
        to += segment.len;
    }
}

void ddpi_pieces_copy_in(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    uint8_t *to = ddpi_arena_op_piece(op, me);
    if (op->chunked) {
        ddpi_chunks_copy_in(op, ddpi_pieces_len(op));
        return;
    }
    if (task->list != NULL) {
        copy_list_in(op, to);
        return;
    }
    if (ddpi_arena_op_row(op)->in == DDPI_WHOLE) {
        struct ddpi_piece from = whole_at(op, task->send);
        copy_in(op, to, &from);
        return;
    }
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_piece from = part_at(op, task->send, &task->send_parts, rank);
        if (rank == me && reads_own_part(op))
            op->task->bytes_sent += from.len; /* counted as on every way */
        else if (rank != me || ddpi_arena_op_row(op)->reduces)
            copy_in(op, to + rank * op->block, &from);
    }
}

static uint32_t divisor_of(const struct ddpi_arena_op *op)
{
    return op->task->call.op == DDP_AVERAGE ? ddpi_arena_ranks(op->arena) : 1;
}

/* Reduce @len bytes at @offset of all pieces to @out; returns whether the call asks for a finite
 * check, and there is an inf or a NaN. */
static bool reduce_pieces(const struct ddpi_arena_op *op, size_t offset, size_t len, uint8_t *out)
{
    const struct ddpi_task *task = op->task;
    bool found = false;
    ddpi_fold(&(struct ddpi_fold){.in = ddpi_arena_op_piece(op, 0) + offset,
                                  .stride = ddpi_arena_stride(op->arena, op->room),
                                  .nin = ddpi_arena_ranks(op->arena),
                                  .out = out,
                                  .count = len / task->element_size,
                                  .dtype = task->call.dtype,
                                  .op = task->call.op,
                                  .divisor = divisor_of(op),
                                  .non_finite = task->call.finite_check ? &found : NULL});
    return found;
}

static uint32_t share_count(const struct ddpi_arena_op *op, size_t len)
{
    size_t most = at_most((len + SHARE - 1) / SHARE, DDPI_ARENA_SHARES);
    return ddpi_arena_is_crowded(op->arena) && len <= SHARE ? 1 : (uint32_t)(most > 0 ? most : 1);
}

void ddpi_pieces_work(struct ddpi_arena_op *op)
{
    size_t len = ddpi_pieces_len(op);
    uint32_t count = share_count(op, len), share;
    uint8_t *result = ddpi_arena_op_piece(op, ddpi_arena_ranks(op->arena));
    ddpi_arena_set_busy(op->arena, op->round);
    while (ddpi_arena_claim(op->arena, op->round, op->work, count, &share)) {
        size_t from = (size_t)share * SHARE;
        if (len > from && reduce_pieces(op, from, at_most(len - from, SHARE), result + from))
            ddpi_arena_note_non_finite(op->arena, op->round, DDPI_RESULT_OF_ALL);
        ddpi_arena_finish(op->arena, op->round, op->work, count, share);
    }
    ddpi_arena_set_busy(op->arena, 0);
}

static void take(const struct ddpi_arena_op *op, const struct ddpi_piece *to, const uint8_t *from,
                 bool just_read)
{
    if (to->len > 0)
        ddpi_way_copy_out(op, to->bytes, from, to->len, just_read);
    op->task->bytes_received += to->len;
}

static void take_of_each(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    size_t offset = ddpi_arena_op_row(op)->in == DDPI_PARTS ? me * op->block : 0;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_piece to = part_at(op, task->recv, &task->recv_parts, rank);
        if (rank != me)
            take(op, &to, ddpi_arena_op_piece(op, rank) + offset, false);
    }
}

/* The same of this rank's part, as its buffer has it, and of those at @offset of others' pieces. */
static bool reduce_own_part(const struct ddpi_arena_op *op, size_t offset, size_t len, uint8_t *out)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    bool found = false;
    struct ddpi_reduction work = {.out = {out},
                                  .nin = ddpi_arena_ranks(op->arena),
                                  .nout = 1,
                                  .count = len / task->element_size,
                                  .dtype = task->call.dtype,
                                  .op = task->call.op,
                                  .divisor = divisor_of(op),
                                  .non_finite = task->call.finite_check ? &found : NULL};
    for (uint32_t rank = 0; rank < work.nin; rank++)
        work.in[rank] = ddpi_arena_op_piece(op, rank) + offset;
    work.in[me] = part_at(op, task->send, &task->send_parts, me).bytes;
    ddpi_reduce_many(&work);
    return found;
}

/* All pieces from @offset on, reduced. */
static void take_reduced(const struct ddpi_arena_op *op, const struct ddpi_piece *to, size_t offset)
{
    if (to->len > 0 && (reads_own_part(op) ? reduce_own_part(op, offset, to->len, to->bytes)
                                           : reduce_pieces(op, offset, to->len, to->bytes)))
        op->task->found_non_finite = true;
    op->task->bytes_received += to->len;
}

bool ddpi_pieces_are_short(const struct ddpi_arena_op *op)
{
    return op->longest * ddpi_arena_ranks(op->arena) <= SHORT;
}

/* @to gets what is at @offset of the result of this round, or of what the root has copied in. */
static void take_stretch(const struct ddpi_arena_op *op, const struct ddpi_piece *to, size_t offset,
                         bool in_place)
{
    const struct ddpi_arena_row *row = ddpi_arena_op_row(op);
    if (row->reduces || (row->works && ddpi_pieces_are_short(op)))
        take_reduced(op, to, offset);
    else if (row->works)
        take(op, to, ddpi_arena_op_piece(op, ddpi_arena_ranks(op->arena)) + offset, in_place);
    else
        take(op, to, ddpi_arena_op_piece(op, op->task->call.root) + offset, false);
}

static void take_to_list(const struct ddpi_arena_op *op)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    struct ddpi_spot spot = op->spot;
    struct ddpi_segment segment;
    size_t len = ddpi_pieces_len(op), done = 0;
    for (; ddpi_segments_next(&segments, &spot, len - done, &segment); done += segment.len) {
        struct ddpi_piece to = {segment.recv, segment.len};
        take_stretch(op, &to, done, segment.send == segment.recv);
    }
}

void ddpi_pieces_copy_out(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    size_t offset =
        ddpi_arena_op_row(op)->in == DDPI_PARTS ? ddpi_arena_rank(op->arena) * op->block : 0;
    struct ddpi_piece to = whole_at(op, task->recv);
    if (op->chunked)
        ddpi_chunks_copy_out(op, to.len);
    else if (ddpi_arena_op_row(op)->out_of_each)
        take_of_each(op);
    else if (task->list != NULL)
        take_to_list(op);
    else
        take_stretch(op, &to, offset, task->send == task->recv);
}

size_t ddpi_pieces_longest_part(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    size_t most = task->own;
    for (uint32_t rank = 0; task->uneven && rank < ddpi_arena_ranks(op->arena); rank++) {
        size_t send = task->send_parts.counts != NULL ? task->send_parts.counts[rank] : 0;
        size_t recv = task->recv_parts.counts != NULL ? task->recv_parts.counts[rank] : 0;
        if (send > most)
            most = send;
        if (recv > most)
            most = recv;
    }
    return most * task->element_size;
}

void ddpi_pieces_set_sizes(struct ddpi_arena_op *op)
{
    uint32_t ranks = ddpi_arena_ranks(op->arena);
    bool parts = ddpi_arena_op_row(op)->in == DDPI_PARTS;
    size_t small = ddpi_arena_size(op->arena, DDPI_ARENA_SMALL) / (parts ? ranks : 1) / 64 * 64;
    op->room = op->longest <= small ? DDPI_ARENA_SMALL : DDPI_ARENA_LARGE;
    if (!parts && op->longest <= ddpi_arena_size(op->arena, DDPI_ARENA_TINY) &&
        (!ddpi_arena_op_row(op)->works || ddpi_pieces_are_short(op)))
        op->room = DDPI_ARENA_TINY;
    op->piece = ddpi_arena_size(op->arena, op->room);
    op->block = op->piece / ranks / 64 * 64;
}

void ddpi_pieces_copy_own_part(struct ddpi_arena_op *op)
{
    if (op->own_copied ||
        (!ddpi_arena_op_row(op)->out_of_each && op->task->call.operation != DDPI_SCATTER))
        return;
    struct ddpi_copy own = ddpi_task_own_copy(op->task, ddpi_arena_rank(op->arena));
    op->own_copied = true;
    if (own.len > 0)
        ddpi_way_copy_out(op, own.to, own.from, own.len, false);
}

void ddpi_pieces_move_spot(struct ddpi_arena_op *op)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    ddpi_segments_skip(&segments, &op->spot, op->piece);
}

void ddpi_pieces_fetch_next(const struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    bool has_blocks = ddpi_arena_op_row(op)->in == DDPI_PARTS;
    if (op->room == DDPI_ARENA_SMALL && !ddpi_arena_op_row(op)->works &&
        !ddpi_way_is_streamed(op) &&
        ddpi_arena_includes(ddpi_arena_op_row(op)->copies_in, &op->task->call, me))
        ddpi_arena_fetch_piece(op->arena, has_blocks && me == 0 ? op->block : 0,
                               at_most(op->longest, has_blocks ? op->block : op->piece));
}
