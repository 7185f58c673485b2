/*
 * arena_method.c - see arena_method.h. Owns nothing.
 */
#include "arena_method.h"

#include <sched.h>

void ddpi_arena_op_enter_round(struct ddpi_arena_op *op)
{
    op->round = ddpi_arena_next_round(op->arena);
    if (!op->checked)
        ddpi_arena_set_call(op->arena, op->round, &op->task->call);
}

enum ddpi_arena_step ddpi_arena_op_arrive(struct ddpi_arena_op *op)
{
    ddpi_arena_arrive(op->arena, op->round);
    return DDPI_ARENA_STEP_AWAIT_ALL;
}

/* Where ranks outnumber the processors, the last one to arrive would do the work. As it has then
 * had more time than the others, the kernel lets those run first, and it is the last one again. So
 * others may run before it looks for work. Measured only below the sizes that go in chunks. */
enum ddpi_arena_step ddpi_arena_op_arrive_for_work(struct ddpi_arena_op *op)
{
    enum ddpi_arena_step step = ddpi_arena_op_arrive(op);
    if (ddpi_arena_is_crowded(op->arena) && ddpi_arena_op_has_one_result(op) &&
        !ddpi_chunks_are_chosen(op))
        sched_yield();
    return step;
}
