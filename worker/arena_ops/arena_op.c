/*
 * arena_op.c - operations as rounds (arena.h): the stages of one. Owns nothing; the state is the
 * caller's. What each operation moves is a row of arena_rows.h, and pieces_op.h moves it.
 */
#include "arena_op.h"

#include "chunks_op.h"
#include "counts_op.h"
#include "direct_op.h"
#include "pieces_op.h"
#include "single_copy_op.h"
#include "way_op.h"

#include <sched.h>

enum {
    SPREAD_EVERY = 16, /* small operations: how often one looks where the ranks are */
};

static bool is_one_of(enum ddpi_arena_who who, const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_arena_includes(who, &op->task->call, rank);
}

/* After it has read what others have, so that nobody waits for a rank that took longer. Where ranks
 * outnumber the processors, it would take time from those that still read. */
static bool copies_own_part_late(const struct ddpi_arena_op *op)
{
    return ddpi_way_is_single(op) && !ddpi_arena_is_crowded(op->arena);
}

void ddpi_arena_begin(struct ddpi_arena_op *op, struct ddpi_arena *arena, struct ddpi_task *task)
{
    *op = (struct ddpi_arena_op){.arena = arena, .task = task, .sent_before = task->bytes_sent};
    op->longest = ddpi_pieces_longest_part(op);
    op->counted = !ddpi_call_is_in_pairs(&task->call); /* all ranks know all counts */
    ddpi_pieces_set_sizes(op);
    ddpi_arena_spread(arena, op->room == DDPI_ARENA_LARGE ? 1 : SPREAD_EVERY);
    op->chunked = !ddpi_pieces_are_short(op) && ddpi_chunks_are_possible(op);
    op->may_show = op->room == DDPI_ARENA_LARGE && ddpi_direct_is_possible(op);
    op->shows = op->may_show && ddpi_direct_find_own(op, &op->own);
    ddpi_way_choose(op); /* on every rank at this place, so that all choose the same */
    if (!op->shows && !copies_own_part_late(op))
        ddpi_pieces_copy_own_part(op);
}

void ddpi_arena_begin_again(struct ddpi_arena_op *op, struct ddpi_task *task)
{
    if (op->room == DDPI_ARENA_LARGE || op->longest >= DDPI_COPY_LEAST) {
        ddpi_arena_begin(op, op->arena, task);
        return;
    }
    ddpi_arena_spread(op->arena, SPREAD_EVERY);
    op->task = task;
    op->stage = DDPI_ARENA_COPY_IN;
    op->checked = op->direct = op->worked = op->own_copied = false;
    op->done = 0;
    ddpi_pieces_copy_own_part(op);
}

/* ---- stages ---- */

/* Where ranks outnumber the processors, the last one to arrive would do the work. As it has then
 * had more time than the others, the kernel lets those run first, and it is the last one again. So
 * others may run before it looks for work. Of chunks each rank has its own. */
static bool leaves_work(const struct ddpi_arena_op *op)
{
    return ddpi_arena_is_crowded(op->arena) && ddpi_arena_op_row(op)->works &&
           !ddpi_pieces_are_short(op) && !op->chunked;
}

static enum ddpi_arena_result start_round(struct ddpi_arena_op *op, struct ddp_error *err)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    bool only_tells = !op->counted || ddpi_way_is_single(op);
    if (only_tells) /* what each tells each other one fits into a small piece */
        op->room = DDPI_ARENA_SMALL;
    else if (op->room == DDPI_ARENA_LARGE && !op->shows &&
             ddpi_arena_grow(op->arena, err) != DDP_OK)
        return DDPI_ARENA_NO_ROOM;
    op->round = ddpi_arena_next_round(op->arena);
    uint64_t started_ns = ddpi_way_start_clock(op);
    if (!op->checked)
        ddpi_arena_set_call(op->arena, op->round, &op->task->call);
    if (op->shows)
        ddpi_arena_set_buffers(op->arena, op->round, &op->own);
    else if (!op->counted)
        ddpi_counts_show(op);
    else if (ddpi_way_is_single(op))
        ddpi_single_copy_show(op);
    else if (is_one_of(ddpi_arena_op_row(op)->copies_in, op, me))
        ddpi_pieces_copy_in(op);
    ddpi_way_stop_clock(op, started_ns);
    ddpi_arena_arrive(op->arena, op->round);
    op->stage = DDPI_ARENA_ARRIVE;
    if (leaves_work(op))
        sched_yield();
    return DDPI_ARENA_WAITS;
}

/* The bytes that a rank sends and receives are the same on every way. */
static void count_bytes(const struct ddpi_arena_op *op)
{
    struct ddpi_task *task = op->task;
    const struct ddpi_arena_row *row = ddpi_arena_op_row(op);
    uint32_t me = ddpi_arena_rank(op->arena), ranks = ddpi_arena_ranks(op->arena);
    size_t part = task->own * task->element_size;
    uint32_t sent = row->in == DDPI_WHOLE ? 1 : row->reduces ? ranks : ranks - 1;
    task->bytes_sent += is_one_of(row->copies_in, op, me) ? part * sent : 0;
    task->bytes_received +=
        is_one_of(row->takes, op, me) ? part * (row->out_of_each ? ranks - 1 : 1) : 0;
}

/* This rank has done its part between the two rounds of an operation. */
static void arrive_again(struct ddpi_arena_op *op)
{
    op->worked = true;
    op->round = ddpi_arena_next_round(op->arena);
    ddpi_arena_arrive(op->arena, op->round);
    op->stage = DDPI_ARENA_ARRIVE;
}

/* Some rank has no buffers in windows, and those that copied something in do it again. */
static void begin_in_pieces(struct ddpi_arena_op *op)
{
    op->stage = DDPI_ARENA_COPY_IN;
    op->task->bytes_sent = op->sent_before;
    op->spent_ns = 0;
    ddpi_pieces_copy_own_part(op);
    ddpi_way_note_meeting(op);
    op->shows = false;
}

static void work_in_windows(struct ddpi_arena_op *op)
{
    ddpi_way_withdraw(op);
    op->direct = true;
    op->shows = false;
    op->stage = DDPI_ARENA_WORK;
    ddpi_direct_work(op);
    count_bytes(op);
}

/* In the first round. false: no rank has shown buffers in windows, and this is a round like any
 * other. */
static bool meet_shown(struct ddpi_arena_op *op)
{
    op->may_show = false;
    enum ddpi_shown shown = ddpi_direct_look(op);
    if (shown == DDPI_SHOWN_BY_NONE)
        return false;
    ddpi_arena_tell_arrived(op->arena);
    bool found = shown != DDPI_SHOWN_BY_SOME && ddpi_direct_find(op);
    if (shown == DDPI_SHOWN_NEW) {
        op->maps = true;
        op->unmapped = !found;
        ddpi_arena_tell_time(op->arena, found ? 0 : DDPI_NO_TIME);
        arrive_again(op);
    } else if (found) {
        work_in_windows(op);
    } else {
        begin_in_pieces(op);
    }
    return true;
}

/* In the second round all have told whether they could map the windows. */
static void meet_mapped(struct ddpi_arena_op *op)
{
    bool usable = !op->unmapped && ddpi_arena_longest_time(op->arena, op->round) != DDPI_NO_TIME;
    ddpi_arena_tell_arrived(op->arena);
    ddpi_windows_settle(ddpi_arena_windows(op->arena), usable);
    op->maps = op->worked = false;
    if (usable)
        work_in_windows(op);
    else
        begin_in_pieces(op);
}

/* In the first of two rounds this rank reduces its chunk, and arrives in the second one. */
static void meet_chunked(struct ddpi_arena_op *op)
{
    if (op->worked) {
        op->worked = false;
        if (op->task->call.finite_check &&
            ddpi_arena_is_non_finite(op->arena, op->round, DDPI_RESULT_OF_ALL))
            op->task->found_non_finite = true;
        return;
    }
    uint64_t started_ns = ddpi_way_start_clock(op);
    ddpi_chunks_reduce(op, ddpi_pieces_len(op));
    ddpi_way_stop_clock(op, started_ns);
    arrive_again(op);
}

/* In the second of two rounds all have read what they need, or one could not, and all begin again
 * on the usual path. */
static void meet_single(struct ddpi_arena_op *op)
{
    ddpi_arena_tell_arrived(op->arena);
    op->stage = DDPI_ARENA_READ;
    if (!op->worked)
        return;
    uint64_t ns = ddpi_arena_longest_time(op->arena, op->round);
    op->done = 0;
    op->worked = false;
    if (ns == DDPI_NO_TIME) {
        ddpi_arena_identity(op->arena)->refused = true;
        op->way = (struct ddpi_copy_way){.path = DDPI_COPY_CACHED};
        op->stage = DDPI_ARENA_COPY_IN;
        ddpi_pieces_set_sizes(op);
        return;
    }
    const struct ddpi_copy_timed last = ddpi_way_timed(op);
    if (op->way.is_timed)
        ddpi_copy_note(&last, ns);
    ddpi_single_copy_count(op);
    op->stage = DDPI_ARENA_OVER;
}

/* All have arrived. */
static enum ddpi_arena_result meet(struct ddpi_arena_op *op, uint32_t *ret_rank)
{
    if (!op->checked && ddpi_arena_odd_call(op->arena, op->round, ret_rank))
        return DDPI_ARENA_MISMATCH;
    if (!op->checked) {
        ddpi_way_note_last_time(op);
        ddpi_way_note_meeting(op);
    }
    op->checked = true;
    ddpi_arena_fetch_next(op->arena);
    if (op->maps) {
        meet_mapped(op);
        return DDPI_ARENA_WAITS;
    }
    if (op->may_show && meet_shown(op))
        return DDPI_ARENA_WAITS;
    if (!op->counted) {
        ddpi_arena_tell_arrived(op->arena);
        op->stage = DDPI_ARENA_COPY_IN;
        if (!ddpi_counts_take(op, ret_rank))
            return DDPI_ARENA_MISMATCH;
        ddpi_pieces_set_sizes(op);
        ddpi_way_choose(op);
        return DDPI_ARENA_WAITS;
    }
    if (ddpi_way_is_single(op)) {
        meet_single(op);
        return DDPI_ARENA_WAITS;
    }
    op->stage = DDPI_ARENA_COPY_OUT;
    if (!ddpi_pieces_are_short(op))
        ddpi_arena_tell_arrived(op->arena);
    if (op->chunked) {
        meet_chunked(op);
    } else if (ddpi_arena_op_row(op)->works && !ddpi_pieces_are_short(op)) {
        op->work = ddpi_arena_next_work(op->arena, op->round);
        uint64_t started_ns = ddpi_way_start_clock(op);
        ddpi_pieces_work(op);
        ddpi_way_stop_clock(op, started_ns);
        op->stage = DDPI_ARENA_WORK;
    }
    return DDPI_ARENA_WAITS;
}

/* Read a stretch; after the last one arrive again, and tell whether it went well. */
static void read_on(struct ddpi_arena_op *op)
{
    uint64_t started_ns = ddpi_way_start_clock(op);
    enum ddpi_single_copy result = ddpi_single_copy_read(op);
    ddpi_way_stop_clock(op, started_ns);
    if (result == DDPI_SINGLE_COPY_GOES_ON)
        return;
    ddpi_arena_tell_time(op->arena, result == DDPI_SINGLE_COPY_REFUSED ? DDPI_NO_TIME
                                                                       : ddpi_way_time_taken(op));
    arrive_again(op);
    ddpi_pieces_copy_own_part(op);
}

/* All shares are finished. */
static void end_work(struct ddpi_arena_op *op)
{
    bool all = op->task->call.operation == DDPI_ALL_REDUCE;
    uint32_t rank = all ? DDPI_RESULT_OF_ALL : ddpi_arena_rank(op->arena);
    if (op->task->call.finite_check && ddpi_arena_is_non_finite(op->arena, op->round, rank))
        op->task->found_non_finite = true;
    op->stage = op->direct ? DDPI_ARENA_OVER : DDPI_ARENA_COPY_OUT;
}

static void finish_round(struct ddpi_arena_op *op)
{
    uint64_t started_ns = ddpi_way_start_clock(op);
    if (is_one_of(ddpi_arena_op_row(op)->takes, op, ddpi_arena_rank(op->arena)))
        ddpi_pieces_copy_out(op);
    ddpi_way_stop_clock(op, started_ns);
    ddpi_pieces_fetch_next(op);
    if (ddpi_pieces_are_short(op)) /* by now the others have seen this rank, so it costs less */
        ddpi_arena_tell_arrived(op->arena);
    if (op->task->list != NULL)
        ddpi_pieces_move_spot(op);
    op->done += ddpi_arena_op_row(op)->in == DDPI_PARTS ? op->block : op->piece;
    op->stage = op->done < op->longest ? DDPI_ARENA_COPY_IN : DDPI_ARENA_OVER;
    if (op->stage == DDPI_ARENA_OVER)
        ddpi_way_tell_time(op);
}

bool ddpi_arena_is_ready(const struct ddpi_arena_op *op)
{
    switch (op->stage) {
    case DDPI_ARENA_ARRIVE:
        return ddpi_arena_all_arrived(op->arena, op->round);
    case DDPI_ARENA_WORK:
        return ddpi_arena_all_finished(op->arena, op->round, op->work);
    case DDPI_ARENA_FAILS:
        return ddpi_arena_has_note(op->arena);
    case DDPI_ARENA_COPY_IN:
    case DDPI_ARENA_READ:
    case DDPI_ARENA_COPY_OUT:
    case DDPI_ARENA_OVER:
        break;
    }
    return true;
}

enum ddpi_arena_result ddpi_arena_advance(struct ddpi_arena_op *op, uint32_t *ret_rank,
                                          struct ddp_error *err)
{
    enum ddpi_arena_result result = DDPI_ARENA_WAITS;
    while (result == DDPI_ARENA_WAITS && ddpi_arena_is_ready(op)) {
        switch (op->stage) {
        case DDPI_ARENA_COPY_IN:
            return start_round(op, err); /* to look at once would take away lines not yet written */
        case DDPI_ARENA_ARRIVE:
            result = meet(op, ret_rank);
            break;
        case DDPI_ARENA_READ:
            read_on(op);
            return DDPI_ARENA_WAITS;
        case DDPI_ARENA_WORK:
            end_work(op);
            break;
        case DDPI_ARENA_COPY_OUT:
            finish_round(op);
            break;
        case DDPI_ARENA_FAILS:
            return DDPI_ARENA_FAILED;
        case DDPI_ARENA_OVER:
            if (ddpi_arena_may_succeed(op->arena))
                return DDPI_ARENA_COMPLETE;
            op->stage = DDPI_ARENA_FAILS;
            break;
        }
    }
    return result;
}

bool ddpi_arena_misses(const struct ddpi_arena_op *op, uint32_t rank)
{
    if (op->stage == DDPI_ARENA_FAILS)
        return ddpi_arena_has_failed(op->arena, rank);
    return op->stage == DDPI_ARENA_WORK ? ddpi_arena_is_busy(op->arena, op->round, rank)
                                        : !ddpi_arena_has_arrived(op->arena, op->round, rank);
}
