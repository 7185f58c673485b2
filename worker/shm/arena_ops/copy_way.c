/*
 * copy_way.c - see copy_way.h. Owns nothing.
 */
#include "copy_way.h"

#include "clock.h"
#include "reduce.h"
#include "stream_copy.h"

#include <string.h>

/* Where ranks outnumber the processors, some share a processor and so its caches: that way is the
 * best, unless each rank has something else for each other one. */
static bool has_choice(const struct ddpi_arena_op *op)
{
    return !ddpi_arena_is_crowded(op->arena) || op->task->call.operation == DDPI_ALL_TO_ALL;
}

void ddpi_way_note_meeting(struct ddpi_arena_op *op)
{
    if (op->copies.way.is_timed && ddpi_arena_is_crowded(op->arena))
        op->copies.met_ns = ddpi_monotonic_ns() - op->copies.spent_ns;
}

void ddpi_way_choose(struct ddpi_arena_op *op)
{
    if (!has_choice(op))
        return;
    unsigned paths = 1U << DDPI_COPY_CACHED;
    if (DDPI_CAN_STREAM && !ddpi_arena_is_crowded(op->arena))
        paths |= 1U << DDPI_COPY_STREAMED;
    if (ddpi_kernel_copy_is_possible(op))
        paths |= 1U << DDPI_COPY_KERNEL;
    op->copies.way = ddpi_copy_next(
        ddpi_arena_copy_choice(op->arena, op->task->call.operation), op->longest, paths,
        ddpi_arena_is_crowded(op->arena) ? DDPI_COPY_MEETING_IS_LITTLE : DDPI_COPY_MEETING_NS);
    ddpi_way_note_meeting(op);
}

void ddpi_way_withdraw(struct ddpi_arena_op *op)
{
    if (has_choice(op))
        ddpi_copy_withdraw(ddpi_arena_copy_choice(op->arena, op->task->call.operation),
                           op->longest);
    op->copies.way = (struct ddpi_copy_way){.path = DDPI_COPY_CACHED};
}

void ddpi_way_restart(struct ddpi_arena_op *op)
{
    if (ddpi_way_is_kernel(op) && !ddpi_kernel_copy_is_possible(op))
        op->copies.way = (struct ddpi_copy_way){.path = DDPI_COPY_CACHED};
    op->copies.spent_ns = op->copies.told_ns = 0;
    ddpi_way_note_meeting(op);
}

void ddpi_way_copy_in(const struct ddpi_arena_op *op, uint8_t *to, const uint8_t *from, size_t len)
{
    const struct ddpi_task *task = op->task;
    if (task->factor != 1)
        ddpi_scale(to, from, len / task->element_size, task->call.dtype, task->factor);
    else if (ddpi_way_is_streamed(op))
        ddpi_stream_copy(to, from, len);
    else
        memcpy(to, from, len);
}

void ddpi_way_copy_out(const struct ddpi_arena_op *op, uint8_t *to, const uint8_t *from, size_t len,
                       bool just_read)
{
    size_t all = op->task->count * op->task->element_size * ddpi_arena_ranks(op->arena);
    if (all > DDPI_ARENA_STREAM && !just_read)
        ddpi_stream_copy(to, from, len);
    else
        memcpy(to, from, len);
}

void ddpi_way_start_clock(struct ddpi_arena_op *op)
{
    if (op->copies.way.is_timed)
        op->copies.started_ns = ddpi_monotonic_ns();
}

void ddpi_way_stop_clock(struct ddpi_arena_op *op)
{
    if (op->copies.way.is_timed)
        op->copies.spent_ns += ddpi_monotonic_ns() - op->copies.started_ns;
}

void ddpi_way_note_end(struct ddpi_arena_op *op)
{
    if (!op->copies.way.is_timed)
        return;
    uint64_t now_ns = ddpi_monotonic_ns();
    op->copies.told_ns = ddpi_arena_is_crowded(op->arena)
                             ? now_ns - op->copies.met_ns
                             : op->copies.spent_ns + now_ns - op->copies.started_ns;
}

void ddpi_way_tell_time(const struct ddpi_arena_op *op)
{
    uint64_t ns = op->copies.told_ns;
    if (!op->copies.way.is_timed)
        return;
    if (ns == 0)
        ns = ddpi_arena_is_crowded(op->arena) ? ddpi_monotonic_ns() - op->copies.met_ns
                                              : op->copies.spent_ns;
    ddpi_arena_tell_time(op->arena, ns);
    *ddpi_arena_last_timed(op->arena) = (struct ddpi_copy_timed){
        ddpi_arena_copy_choice(op->arena, op->task->call.operation), op->longest, op->copies.way};
}

void ddpi_way_note_last_time(const struct ddpi_arena_op *op)
{
    struct ddpi_copy_timed *last = ddpi_arena_last_timed(op->arena);
    if (last->choice == NULL)
        return;
    ddpi_copy_note(last, ddpi_arena_longest_time(op->arena, op->round));
    last->choice = NULL;
}
