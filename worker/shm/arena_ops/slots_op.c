/*
 * slots_op.c - an operation through slots (arena_method.h), in as many rounds as it takes. Where
 * it reduces to one result, ranks that run take shares of that, so none waits for a rank that does
 * not run. Owns nothing.
 */
#include "arena_method.h"
#include "slots.h"

enum { SHARE = 32 * 1024 }; /* bytes of the result that a rank reduces at a time */

static enum ddpi_arena_step copy_in(struct ddpi_arena_op *op, struct ddp_error *err)
{
    if (op->slots.kind == DDPI_SLOT_LARGE && ddpi_arena_grow(op->arena, err) != DDP_OK)
        return DDPI_ARENA_STEP_NO_ROOM;
    ddpi_arena_op_enter_round(op);
    ddpi_slots_copy_in(op);
    return ddpi_arena_op_arrive_for_work(op);
}

static uint32_t share_count(const struct ddpi_arena_op *op, size_t len)
{
    size_t most = (len + SHARE - 1) / SHARE;
    if (most == 0 || (ddpi_arena_is_crowded(op->arena) && len <= SHARE))
        return 1;
    return most < DDPI_ARENA_SHARES ? (uint32_t)most : DDPI_ARENA_SHARES;
}

static enum ddpi_arena_step reduce_shares(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    if (!ddpi_arena_op_has_one_result(op))
        return DDPI_ARENA_STEP_NEXT;
    size_t len = ddpi_slots_len(op);
    uint32_t count = share_count(op, len), share;
    uint8_t *result = ddpi_slots_at(op, ddpi_arena_ranks(op->arena));
    op->work = ddpi_arena_next_work(op->arena, op->round);
    ddpi_arena_set_busy(op->arena, op->round);
    while (ddpi_arena_claim(op->arena, op->round, op->work, count, &share)) {
        size_t from = (size_t)share * SHARE, left = len > from ? len - from : 0;
        if (left > 0 && ddpi_slots_reduce(op, from, left < SHARE ? left : SHARE, result + from))
            ddpi_arena_note_non_finite(op->arena, op->round, DDPI_ARENA_LINE_OF_ALL);
        ddpi_arena_finish(op->arena, op->round, op->work, count, share);
    }
    ddpi_arena_set_busy(op->arena, 0);
    return DDPI_ARENA_STEP_AWAIT_SHARES;
}

static enum ddpi_arena_step copy_out(struct ddpi_arena_op *op, struct ddp_error *err)
{
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    (void)err;
    if (ddpi_arena_op_has_one_result(op) && op->task->call.finite_check &&
        ddpi_arena_is_non_finite(op->arena, op->round, DDPI_ARENA_LINE_OF_ALL))
        op->task->found_non_finite = true;
    ddpi_slots_take(op, shape->reduces && shape->sends_blocks);
    ddpi_slots_fetch_next(op);
    return ddpi_slots_move_on(op) ? DDPI_ARENA_STEP_NEXT : DDPI_ARENA_STEP_OVER;
}

const struct ddpi_arena_method ddpi_slots_method = {.begin = ddpi_slots_begin,
                                                    .steps = {copy_in, reduce_shares, copy_out}};
