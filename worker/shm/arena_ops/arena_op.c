/*
 * arena_op.c - what all methods of an operation share: the choice of one, what is compared when all
 * have arrived, and the order of its steps. Owns nothing; the state is the caller's.
 */
#include "arena_op.h"

#include "copy_way.h"
#include "slots.h"

enum {
    SPREAD_EVERY = 16, /* small operations: how often one looks where the ranks are */
};

/* ---- the choice of a method ---- */

/* The longest part or buffer, as far as this rank knows. */
static size_t longest_part(const struct ddpi_task *task, uint32_t ranks)
{
    size_t most = task->own;
    for (uint32_t rank = 0; task->uneven && rank < ranks; rank++) {
        size_t send = task->send_parts.counts != NULL ? task->send_parts.counts[rank] : 0;
        size_t recv = task->recv_parts.counts != NULL ? task->recv_parts.counts[rank] : 0;
        most = send > most ? send : most;
        most = recv > most ? recv : most;
    }
    return most * task->element_size;
}

/* If no buffers are registered, or they are of no use. */
static const struct ddpi_arena_method *copying_method(const struct ddpi_arena_op *op)
{
    if (ddpi_way_is_kernel(op))
        return &ddpi_kernel_copy_method;
    if (ddpi_short_is_chosen(op))
        return &ddpi_short_method;
    return ddpi_chunks_are_chosen(op) ? &ddpi_chunks_method : &ddpi_slots_method;
}

static void enter_method(struct ddpi_arena_op *op, const struct ddpi_arena_method *method)
{
    op->method = method;
    op->stage = DDPI_ARENA_STAGE_GOES_ON;
    op->step = 0;
    if (method->begin != NULL)
        method->begin(op);
}

/* All ranks know op->longest. */
static void enter_chosen_method(struct ddpi_arena_op *op)
{
    bool registered = ddpi_registered_is_possible(op) && ddpi_registered_find_own(op);
    ddpi_way_choose(op); /* on every rank at this place, so that all choose the same */
    enter_method(op, registered ? &ddpi_registered_method : copying_method(op));
}

/* After the counts the way of copies is chosen for the first time. After any other method the
 * operation starts anew: what that has copied for others is copied again. */
static void switch_method(struct ddpi_arena_op *op)
{
    if (op->method == &ddpi_counts_method)
        ddpi_way_choose(op);
    else
        ddpi_way_restart(op);
    enter_method(op, copying_method(op));
}

void ddpi_arena_begin(struct ddpi_arena_op *op, struct ddpi_arena *arena, struct ddpi_task *task)
{
    *op = (struct ddpi_arena_op){.arena = arena, .task = task};
    op->longest = longest_part(task, ddpi_arena_ranks(arena));
    ddpi_arena_spread(arena, ddpi_slots_kind(op) == DDPI_SLOT_LARGE ? 1 : SPREAD_EVERY);
    if (ddpi_call_is_in_pairs(&task->call))
        enter_method(op, &ddpi_counts_method);
    else
        enter_chosen_method(op);
}

/* The method and the slots that were chosen still hold, unless the slots are large, or the way of
 * copies is measured for this size. */
void ddpi_arena_begin_again(struct ddpi_arena_op *op, struct ddpi_task *task)
{
    bool has_slots = op->method == &ddpi_short_method || op->method == &ddpi_slots_method ||
                     op->method == &ddpi_chunks_method;
    if (!has_slots || op->slots.kind == DDPI_SLOT_LARGE || op->longest >= DDPI_COPY_LEAST) {
        ddpi_arena_begin(op, op->arena, task);
        return;
    }
    ddpi_arena_spread(op->arena, SPREAD_EVERY);
    op->task = task;
    op->stage = DDPI_ARENA_STAGE_GOES_ON;
    op->step = 0;
    op->checked = op->own_copied = false;
    op->slots.done = 0;
    ddpi_slots_copy_own_part(op);
}

/* ---- rounds ---- */

/* All have arrived. In the first round their calls are compared. If some show registered buffers
 * then, and this rank does not, all begin again without. false: op->odd has called something
 * else. */
static bool meet(struct ddpi_arena_op *op)
{
    bool first = !op->checked;
    op->stage = DDPI_ARENA_STAGE_GOES_ON;
    if (first && ddpi_arena_odd_call(op->arena, op->round, &op->odd))
        return false;
    op->checked = true;
    if (first) {
        ddpi_way_note_last_time(op);
        ddpi_way_note_meeting(op);
    }
    ddpi_arena_fetch_next(op->arena);
    if (op->method->wakes_late)
        return true;
    ddpi_arena_tell_arrived(op->arena);
    if (first && op->method != &ddpi_registered_method && ddpi_registered_is_possible(op) &&
        ddpi_registered_is_shown(op))
        switch_method(op);
    return true;
}

/* ---- steps ---- */

/* The same for every method. */
static void count_bytes(const struct ddpi_arena_op *op)
{
    struct ddpi_task *task = op->task;
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    uint32_t me = ddpi_arena_rank(op->arena), ranks = ddpi_arena_ranks(op->arena);
    size_t size = task->element_size;
    bool sends = ddpi_arena_op_includes(op, shape->sends);
    bool takes = ddpi_arena_op_includes(op, shape->takes);
    if (sends && !shape->sends_blocks)
        task->bytes_sent += task->own * size;
    if (takes && !shape->takes_of_each)
        task->bytes_received += task->own * size;
    if (!shape->sends_blocks && !shape->takes_of_each)
        return;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (sends && shape->sends_blocks && (rank != me || shape->reduces))
            task->bytes_sent += ddpi_parts_at(&task->send_parts, task->own, rank).count * size;
        if (takes && shape->takes_of_each && rank != me)
            task->bytes_received += ddpi_parts_at(&task->recv_parts, task->own, rank).count * size;
    }
}

static void end_steps(struct ddpi_arena_op *op)
{
    count_bytes(op);
    ddpi_way_tell_time(op);
    op->stage = DDPI_ARENA_STAGE_OVER;
}

static void follow(struct ddpi_arena_op *op, enum ddpi_arena_stage stage)
{
    unsigned next = op->step + 1;
    bool is_last = next == DDPI_ARENA_METHOD_STEPS || op->method->steps[next] == NULL;
    op->step = is_last ? 0 : next;
    op->stage = stage;
}

/* *@ret_turn: return to the driver now. To look at once at the lines of arrival would take them
 * from ranks that are about to write them. */
static enum ddpi_arena_result take_step(struct ddpi_arena_op *op, bool *ret_turn,
                                        struct ddp_error *err)
{
    ddpi_way_start_clock(op);
    enum ddpi_arena_step step = op->method->steps[op->step](op, err);
    ddpi_way_stop_clock(op);
    *ret_turn = step == DDPI_ARENA_STEP_AWAIT_ALL || step == DDPI_ARENA_STEP_AGAIN;
    switch (step) {
    case DDPI_ARENA_STEP_NEXT:
        follow(op, DDPI_ARENA_STAGE_GOES_ON);
        break;
    case DDPI_ARENA_STEP_AWAIT_ALL:
        follow(op, DDPI_ARENA_STAGE_ARRIVE);
        break;
    case DDPI_ARENA_STEP_AWAIT_SHARES:
        follow(op, DDPI_ARENA_STAGE_WORK);
        break;
    case DDPI_ARENA_STEP_AGAIN:
        break;
    case DDPI_ARENA_STEP_OVER:
        end_steps(op);
        break;
    case DDPI_ARENA_STEP_SWITCH:
        switch_method(op);
        break;
    case DDPI_ARENA_STEP_MISMATCH:
        return DDPI_ARENA_RESULT_MISMATCH;
    case DDPI_ARENA_STEP_NO_ROOM:
        return DDPI_ARENA_RESULT_NO_ROOM;
    }
    return DDPI_ARENA_RESULT_WAITS;
}

bool ddpi_arena_is_ready(const struct ddpi_arena_op *op)
{
    switch (op->stage) {
    case DDPI_ARENA_STAGE_ARRIVE:
        return ddpi_arena_all_arrived(op->arena, op->round);
    case DDPI_ARENA_STAGE_WORK:
        return ddpi_arena_all_finished(op->arena, op->round, op->work);
    case DDPI_ARENA_STAGE_FAILS:
        return ddpi_arena_has_note(op->arena);
    case DDPI_ARENA_STAGE_GOES_ON:
    case DDPI_ARENA_STAGE_OVER:
        break;
    }
    return true;
}

enum ddpi_arena_result ddpi_arena_advance(struct ddpi_arena_op *op, struct ddp_error *err)
{
    enum ddpi_arena_result result = DDPI_ARENA_RESULT_WAITS;
    bool turn = false;
    while (result == DDPI_ARENA_RESULT_WAITS && !turn && ddpi_arena_is_ready(op)) {
        switch (op->stage) {
        case DDPI_ARENA_STAGE_ARRIVE:
            if (!meet(op))
                return DDPI_ARENA_RESULT_MISMATCH;
            break;
        case DDPI_ARENA_STAGE_GOES_ON:
        case DDPI_ARENA_STAGE_WORK:
            result = take_step(op, &turn, err);
            break;
        case DDPI_ARENA_STAGE_OVER:
            if (ddpi_arena_may_succeed(op->arena))
                return DDPI_ARENA_RESULT_COMPLETE;
            op->stage = DDPI_ARENA_STAGE_FAILS;
            break;
        case DDPI_ARENA_STAGE_FAILS:
            return DDPI_ARENA_RESULT_FAILED;
        }
    }
    return result;
}

bool ddpi_arena_misses(const struct ddpi_arena_op *op, uint32_t rank)
{
    if (op->stage == DDPI_ARENA_STAGE_FAILS)
        return ddpi_arena_has_failed(op->arena, rank);
    return op->stage == DDPI_ARENA_STAGE_WORK ? ddpi_arena_is_busy(op->arena, op->round, rank)
                                              : !ddpi_arena_has_arrived(op->arena, op->round, rank);
}
