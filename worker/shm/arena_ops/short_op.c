/*
 * short_op.c - an operation of few bytes (arena_method.h): one round, after which each rank reduces
 * all slots for itself. Owns nothing.
 */
#include "arena_method.h"
#include "slots.h"

enum { SHORT = 8 * 1024 }; /* bytes of all ranks */

bool ddpi_short_is_chosen(const struct ddpi_arena_op *op)
{
    return op->longest * ddpi_arena_ranks(op->arena) <= SHORT;
}

static enum ddpi_arena_step copy_in(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    ddpi_arena_op_enter_round(op);
    ddpi_slots_copy_in(op);
    return ddpi_arena_op_arrive(op);
}

/* Others are woken last: by now they have seen this rank, so it costs less. */
static enum ddpi_arena_step copy_out(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    ddpi_slots_take(op, ddpi_arena_op_shape(op)->reduces);
    ddpi_slots_fetch_next(op);
    ddpi_arena_tell_arrived(op->arena);
    return DDPI_ARENA_STEP_OVER;
}

const struct ddpi_arena_method ddpi_short_method = {
    .begin = ddpi_slots_begin, .steps = {copy_in, copy_out}, .wakes_late = true};
