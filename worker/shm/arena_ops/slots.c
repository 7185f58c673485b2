/*
 * slots.c - see slots.h. Owns nothing.
 */
#include "slots.h"

#include "copy_way.h"
#include "reduce.h"
#include "reduce_any.h"

static size_t at_most(size_t size, size_t most)
{
    return size < most ? size : most;
}

static bool has_blocks(const struct ddpi_arena_op *op)
{
    return ddpi_arena_op_shape(op)->sends_blocks;
}

/* ---- what a round moves ---- */

enum ddpi_slot_kind ddpi_slots_kind(const struct ddpi_arena_op *op)
{
    uint32_t ranks = ddpi_arena_ranks(op->arena);
    size_t small = ddpi_arena_slot_size(op->arena, DDPI_SLOT_SMALL) / (has_blocks(op) ? ranks : 1);
    if (!has_blocks(op) && op->longest <= ddpi_arena_slot_size(op->arena, DDPI_SLOT_TINY) &&
        (!ddpi_arena_op_has_one_result(op) || ddpi_short_is_chosen(op)))
        return DDPI_SLOT_TINY;
    return op->longest <= small / 64 * 64 ? DDPI_SLOT_SMALL : DDPI_SLOT_LARGE;
}

void ddpi_slots_begin(struct ddpi_arena_op *op)
{
    enum ddpi_slot_kind kind = ddpi_slots_kind(op);
    size_t size = ddpi_arena_slot_size(op->arena, kind);
    op->slots = (struct ddpi_slots){
        .kind = kind, .size = size, .block = size / ddpi_arena_ranks(op->arena) / 64 * 64};
    ddpi_slots_copy_own_part(op);
}

/* The bytes of a part of @len bytes that belong to this round. */
static size_t range_of(const struct ddpi_arena_op *op, size_t len)
{
    const struct ddpi_slots *slots = &op->slots;
    return len > slots->done
               ? at_most(len - slots->done, has_blocks(op) ? slots->block : slots->size)
               : 0;
}

static struct ddpi_range part_at(const struct ddpi_arena_op *op, const void *buffer,
                                 const struct ddpi_parts *parts, uint32_t rank)
{
    struct ddpi_chunk part = ddpi_parts_at(parts, op->task->own, rank);
    size_t size = op->task->element_size;
    return (struct ddpi_range){(uint8_t *)((uintptr_t)buffer + part.first * size + op->slots.done),
                               range_of(op, part.count * size)};
}

static struct ddpi_range whole_at(const struct ddpi_arena_op *op, const void *buffer)
{
    return (struct ddpi_range){(uint8_t *)((uintptr_t)buffer + op->slots.done),
                               range_of(op, op->task->own * op->task->element_size)};
}

size_t ddpi_slots_len(const struct ddpi_arena_op *op)
{
    return whole_at(op, NULL).len;
}

bool ddpi_slots_move_on(struct ddpi_arena_op *op)
{
    struct ddpi_slots *slots = &op->slots;
    if (op->task->list != NULL) {
        struct ddpi_segments segments = ddpi_task_segments(op->task);
        ddpi_segments_skip(&segments, &slots->spot, slots->size);
    }
    slots->done += has_blocks(op) ? slots->block : slots->size;
    return slots->done < op->longest;
}

void ddpi_slots_fetch_next(const struct ddpi_arena_op *op)
{
    const struct ddpi_slots *slots = &op->slots;
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    if (slots->kind != DDPI_SLOT_SMALL || ddpi_arena_op_has_one_result(op) ||
        ddpi_way_is_streamed(op) || !ddpi_arena_op_includes(op, shape->sends))
        return;
    bool skips = has_blocks(op) && ddpi_arena_rank(op->arena) == 0;
    ddpi_arena_fetch_slot(op->arena, skips ? slots->block : 0,
                          at_most(op->longest, has_blocks(op) ? slots->block : slots->size));
}

/* ---- in ---- */

static void copy_in(const struct ddpi_arena_op *op, uint8_t *to, const struct ddpi_range *from)
{
    if (from->len > 0)
        ddpi_way_copy_in(op, to, from->bytes, from->len);
}

/* Whether a rank that reduces its own part reads that where it is, and nobody else reads it. */
static bool reads_own_part(const struct ddpi_arena_op *op)
{
    return ddpi_arena_op_shape(op)->reduces && has_blocks(op) && op->task->factor == 1 &&
           ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST;
}

/* From the buffers of a list, which have the bytes of this round one after the other. */
static void copy_list_in(const struct ddpi_arena_op *op, uint8_t *to)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    struct ddpi_spot spot = op->slots.spot;
    struct ddpi_segment segment;
    size_t left = ddpi_slots_len(op);
    for (; ddpi_segments_next(&segments, &spot, left, &segment); left -= segment.len) {
        ddpi_way_copy_in(op, to, segment.send, segment.len);
        to += segment.len;
    }
}

void ddpi_slots_copy_own_part(struct ddpi_arena_op *op)
{
    if (op->own_copied)
        return;
    if (!ddpi_arena_op_shape(op)->takes_of_each && op->task->call.operation != DDPI_SCATTER)
        return;
    struct ddpi_copy own = ddpi_task_own_copy(op->task, ddpi_arena_rank(op->arena));
    op->own_copied = true;
    if (own.len > 0)
        ddpi_way_copy_out(op, own.to, own.from, own.len, false);
}

void ddpi_slots_copy_in(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    uint32_t me = ddpi_arena_rank(op->arena);
    uint8_t *to = ddpi_slots_at(op, me);
    if (!ddpi_arena_op_includes(op, shape->sends))
        return;
    if (task->list != NULL) {
        copy_list_in(op, to);
        return;
    }
    if (!has_blocks(op)) {
        struct ddpi_range from = whole_at(op, task->send);
        copy_in(op, to, &from);
        return;
    }
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_range from = part_at(op, task->send, &task->send_parts, rank);
        if (rank != me || (shape->reduces && !reads_own_part(op)))
            copy_in(op, to + rank * op->slots.block, &from);
    }
}

/* ---- reduced ---- */

static uint32_t divisor_of(const struct ddpi_arena_op *op)
{
    return op->task->call.op == DDP_AVERAGE ? ddpi_arena_ranks(op->arena) : 1;
}

bool ddpi_slots_reduce(const struct ddpi_arena_op *op, size_t offset, size_t len, uint8_t *out)
{
    const struct ddpi_task *task = op->task;
    bool found = false;
    ddpi_fold(&(struct ddpi_fold){.in = ddpi_slots_at(op, 0) + offset,
                                  .stride = ddpi_arena_slot_stride(op->arena, op->slots.kind),
                                  .nin = ddpi_arena_ranks(op->arena),
                                  .out = out,
                                  .count = len / task->element_size,
                                  .dtype = task->call.dtype,
                                  .op = task->call.op,
                                  .divisor = divisor_of(op),
                                  .non_finite = task->call.finite_check ? &found : NULL});
    return found;
}

/* The same of this rank's part, as its buffer has it, and of those at @offset of others' slots. */
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
        work.in[rank] = ddpi_slots_at(op, rank) + offset;
    work.in[me] = part_at(op, task->send, &task->send_parts, me).bytes;
    ddpi_reduce_many(&work);
    return found;
}

static void take_reduced(const struct ddpi_arena_op *op, const struct ddpi_range *to, size_t offset)
{
    if (to->len > 0 && (reads_own_part(op) ? reduce_own_part(op, offset, to->len, to->bytes)
                                           : ddpi_slots_reduce(op, offset, to->len, to->bytes)))
        op->task->found_non_finite = true;
}

/* ---- out ---- */

static void take(const struct ddpi_arena_op *op, const struct ddpi_range *to, const uint8_t *from,
                 bool just_read)
{
    if (to->len > 0)
        ddpi_way_copy_out(op, to->bytes, from, to->len, just_read);
}

static void take_of_each(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    size_t offset = has_blocks(op) ? me * op->slots.block : 0;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_range to = part_at(op, task->recv, &task->recv_parts, rank);
        if (rank != me)
            take(op, &to, ddpi_slots_at(op, rank) + offset, false);
    }
}

/* @to gets what is at @offset of the result of this round, or of what the root has copied in. */
static void take_range(const struct ddpi_arena_op *op, const struct ddpi_range *to, size_t offset,
                       bool reduces, bool in_place)
{
    if (reduces)
        take_reduced(op, to, offset);
    else if (ddpi_arena_op_has_one_result(op))
        take(op, to, ddpi_slots_at(op, ddpi_arena_ranks(op->arena)) + offset, in_place);
    else
        take(op, to, ddpi_slots_at(op, op->task->call.root) + offset, false);
}

static void take_to_list(const struct ddpi_arena_op *op, bool reduces)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    struct ddpi_spot spot = op->slots.spot;
    struct ddpi_segment segment;
    size_t len = ddpi_slots_len(op), done = 0;
    for (; ddpi_segments_next(&segments, &spot, len - done, &segment); done += segment.len) {
        struct ddpi_range to = {segment.recv, segment.len};
        take_range(op, &to, done, reduces, segment.send == segment.recv);
    }
}

void ddpi_slots_take(const struct ddpi_arena_op *op, bool reduces)
{
    const struct ddpi_task *task = op->task;
    if (!ddpi_arena_op_includes(op, ddpi_arena_op_shape(op)->takes))
        return;
    if (ddpi_arena_op_shape(op)->takes_of_each) {
        take_of_each(op);
        return;
    }
    if (task->list != NULL) {
        take_to_list(op, reduces);
        return;
    }
    struct ddpi_range to = whole_at(op, task->recv);
    size_t offset = has_blocks(op) ? ddpi_arena_rank(op->arena) * op->slots.block : 0;
    take_range(op, &to, offset, reduces, task->send == task->recv);
}
