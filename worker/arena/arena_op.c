/*
 * arena_op.c - operations as rounds (arena.h). Owns nothing; the state is the caller's. What each
 * operation moves is a row of arena_rows.h.
 */
#include "arena_op.h"

#include "arena_rows.h"
#include "chunks_op.h"
#include "clock.h"
#include "direct_op.h"
#include "reduce.h"
#include "reduce_any.h"
#include "single_copy_op.h"
#include "stream_copy.h"

#include <sched.h>
#include <string.h>

enum {
    SHORT = 8 * 1024,  /* bytes of all ranks up to which each reduces for itself */
    SHARE = 32 * 1024, /* bytes of the result that a rank reduces at a time */
    SPREAD_EVERY = 16, /* small operations: how often one looks where the ranks are */
};

static const struct ddpi_arena_row *row_of(const struct ddpi_arena_op *op)
{
    return ddpi_arena_row(op->task->call.operation);
}

static bool is_one_of(enum ddpi_arena_who who, const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_arena_includes(who, &op->task->call, rank);
}

static size_t at_most(size_t size, size_t most)
{
    return size < most ? size : most;
}

/* ---- what a round moves ---- */

/* The bytes of a part of @len bytes that belong to this round. */
static size_t stretch(const struct ddpi_arena_op *op, size_t len)
{
    size_t room = row_of(op)->in == DDPI_PARTS ? op->block : op->piece;
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

static uint8_t *piece_of(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_arena_piece(op->arena, op->round, rank, op->room);
}

/* ---- which way copies take ---- */

/* Where ranks outnumber the processors, some share a processor and so its caches: that way is the
 * best, unless each rank has something else for each other one. Before the counts are exchanged,
 * ranks do not know the same size. */
static bool has_choice(const struct ddpi_arena_op *op)
{
    return op->counted &&
           (!ddpi_arena_is_crowded(op->arena) || op->task->call.operation == DDPI_ALL_TO_ALL);
}

/* Where ranks outnumber the processors, most of an operation is to wait for each other, so that
 * counts too, once all have called it. */
static void note_meeting(struct ddpi_arena_op *op)
{
    if (op->way.is_timed && ddpi_arena_is_crowded(op->arena))
        op->met_ns = ddpi_now_ns() - op->spent_ns;
}

static void choose_way(struct ddpi_arena_op *op)
{
    if (!has_choice(op))
        return;
    unsigned paths = 1U << DDPI_COPY_CACHED;
    if (DDPI_CAN_STREAM && !ddpi_arena_is_crowded(op->arena))
        paths |= 1U << DDPI_COPY_STREAMED;
    if (ddpi_single_copy_is_possible(op))
        paths |= 1U << DDPI_COPY_SINGLE;
    op->way = ddpi_copy_next(
        ddpi_arena_copy_choice(op->arena, op->task->call.operation), op->longest, paths,
        ddpi_arena_is_crowded(op->arena) ? DDPI_COPY_NOTED_NS : DDPI_COPY_MEETING_NS);
    note_meeting(op);
}

static void withdraw_way(struct ddpi_arena_op *op)
{
    if (has_choice(op))
        ddpi_copy_withdraw(ddpi_arena_copy_choice(op->arena, op->task->call.operation),
                           op->longest);
    op->way = (struct ddpi_copy_way){.path = DDPI_COPY_CACHED};
}

static bool is_streamed(const struct ddpi_arena_op *op)
{
    return op->way.path == DDPI_COPY_STREAMED;
}

static bool is_single(const struct ddpi_arena_op *op)
{
    return op->way.path == DDPI_COPY_SINGLE;
}

static uint64_t start_clock(const struct ddpi_arena_op *op)
{
    return op->way.is_timed ? ddpi_now_ns() : 0;
}

static void stop_clock(struct ddpi_arena_op *op, uint64_t started_ns)
{
    if (op->way.is_timed)
        op->spent_ns += ddpi_now_ns() - started_ns;
}

static struct ddpi_copy_timed timed(const struct ddpi_arena_op *op)
{
    return (struct ddpi_copy_timed){ddpi_arena_copy_choice(op->arena, op->task->call.operation),
                                    op->longest, op->way};
}

static uint64_t time_taken(const struct ddpi_arena_op *op)
{
    if (!op->way.is_timed)
        return 0;
    return ddpi_arena_is_crowded(op->arena) ? ddpi_now_ns() - op->met_ns : op->spent_ns;
}

/* At the end of the operation. */
static void tell_time(const struct ddpi_arena_op *op)
{
    if (!op->way.is_timed)
        return;
    ddpi_arena_tell_time(op->arena, time_taken(op));
    *ddpi_arena_last_timed(op->arena) = timed(op);
}

/* All have arrived, so all have told what the operation before this one took. */
static void note_last_time(const struct ddpi_arena_op *op)
{
    struct ddpi_copy_timed *last = ddpi_arena_last_timed(op->arena);
    if (last->choice == NULL)
        return;
    uint64_t ns = ddpi_arena_longest_time(op->arena, op->round);
    if (ns != DDPI_NO_TIME)
        ddpi_copy_note(last, ns);
    last->choice = NULL;
}

/* ---- copies ---- */

/* Of a pre-multiplied reduction the factor is applied on the way in. */
static void copy_in(const struct ddpi_arena_op *op, uint8_t *to, const struct ddpi_piece *from)
{
    const struct ddpi_task *task = op->task;
    if (from->len == 0)
        return;
    if (task->factor != 1)
        ddpi_scale(to, from->bytes, from->len / task->element_size, task->call.dtype, task->factor);
    else if (is_streamed(op))
        ddpi_stream_copy(to, from->bytes, from->len);
    else
        memcpy(to, from->bytes, from->len);
    op->task->bytes_sent += from->len;
}

/* Whether a rank that reduces its own part reads that where it is, and nobody else reads it. */
static bool reads_own_part(const struct ddpi_arena_op *op)
{
    return row_of(op)->reduces && op->task->factor == 1 &&
           ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST;
}

/* From the buffers of a list, which have the bytes of this round one after the other. */
static void copy_list_in(const struct ddpi_arena_op *op, uint8_t *to)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    struct ddpi_spot spot = op->spot;
    struct ddpi_segment segment;
    size_t left = whole_at(op, NULL).len;
    for (; ddpi_segments_next(&segments, &spot, left, &segment); left -= segment.len) {
        struct ddpi_piece from = {(uint8_t *)(uintptr_t)segment.send, segment.len};
        copy_in(op, to, &from);
        to += segment.len;
    }
}

static void copy_all_in(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    uint8_t *to = piece_of(op, me);
    if (op->chunked) {
        ddpi_chunks_copy_in(op, whole_at(op, NULL).len);
        return;
    }
    if (task->list != NULL) {
        copy_list_in(op, to);
        return;
    }
    if (row_of(op)->in == DDPI_WHOLE) {
        struct ddpi_piece from = whole_at(op, task->send);
        copy_in(op, to, &from);
        return;
    }
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_piece from = part_at(op, task->send, &task->send_parts, rank);
        if (rank == me && reads_own_part(op))
            op->task->bytes_sent += from.len; /* counted as on every way */
        else if (rank != me || row_of(op)->reduces)
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
    ddpi_fold(&(struct ddpi_fold){.in = piece_of(op, 0) + offset,
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

/* Do shares of the reduction until none is left. */
static void work(struct ddpi_arena_op *op)
{
    size_t len = whole_at(op, NULL).len;
    uint32_t count = share_count(op, len), share;
    uint8_t *result = piece_of(op, ddpi_arena_ranks(op->arena));
    ddpi_arena_set_busy(op->arena, op->round);
    while (ddpi_arena_claim(op->arena, op->round, op->work, count, &share)) {
        size_t from = (size_t)share * SHARE;
        if (len > from && reduce_pieces(op, from, at_most(len - from, SHARE), result + from))
            ddpi_arena_note_non_finite(op->arena, op->round, DDPI_RESULT_OF_ALL);
        ddpi_arena_finish(op->arena, op->round, op->work, count, share);
    }
    ddpi_arena_set_busy(op->arena, 0);
}

/* @just_read: @to is in the caches, as it was copied in. */
static void take(const struct ddpi_arena_op *op, const struct ddpi_piece *to, const uint8_t *from,
                 bool just_read)
{
    size_t all = op->task->count * op->task->element_size * ddpi_arena_ranks(op->arena);
    if (to->len == 0)
        return;
    if (all > DDPI_ARENA_STREAM && !just_read)
        ddpi_stream_copy(to->bytes, from, to->len);
    else
        memcpy(to->bytes, from, to->len);
    op->task->bytes_received += to->len;
}

static void take_of_each(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    uint32_t me = ddpi_arena_rank(op->arena);
    size_t offset = row_of(op)->in == DDPI_PARTS ? me * op->block : 0;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_piece to = part_at(op, task->recv, &task->recv_parts, rank);
        if (rank != me)
            take(op, &to, piece_of(op, rank) + offset, false);
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
        work.in[rank] = piece_of(op, rank) + offset;
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

/* Whether each rank that wants the result reduces all pieces for itself: for few bytes that takes
 * less time than to share the work, which is one more meeting. */
static bool is_short(const struct ddpi_arena_op *op)
{
    return op->longest * ddpi_arena_ranks(op->arena) <= SHORT;
}

/* @to gets what is at @offset of the result of this round, or of what the root has copied in. */
static void take_stretch(const struct ddpi_arena_op *op, const struct ddpi_piece *to, size_t offset,
                         bool in_place)
{
    const struct ddpi_arena_row *row = row_of(op);
    if (row->reduces || (row->works && is_short(op)))
        take_reduced(op, to, offset);
    else if (row->works)
        take(op, to, piece_of(op, ddpi_arena_ranks(op->arena)) + offset, in_place);
    else
        take(op, to, piece_of(op, op->task->call.root) + offset, false);
}

static void take_to_list(const struct ddpi_arena_op *op)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    struct ddpi_spot spot = op->spot;
    struct ddpi_segment segment;
    size_t len = whole_at(op, NULL).len, done = 0;
    for (; ddpi_segments_next(&segments, &spot, len - done, &segment); done += segment.len) {
        struct ddpi_piece to = {segment.recv, segment.len};
        take_stretch(op, &to, done, segment.send == segment.recv);
    }
}

static void copy_all_out(const struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    size_t offset = row_of(op)->in == DDPI_PARTS ? ddpi_arena_rank(op->arena) * op->block : 0;
    struct ddpi_piece to = whole_at(op, task->recv);
    if (op->chunked)
        ddpi_chunks_copy_out(op, to.len);
    else if (row_of(op)->out_of_each)
        take_of_each(op);
    else if (task->list != NULL)
        take_to_list(op);
    else
        take_stretch(op, &to, offset, task->send == task->recv);
}

/* ---- sizes ---- */

/* Bytes of the longest part that passes between two ranks, or of the buffer, as far as this rank
 * knows: the number of rounds, if all ranks know the same. */
static size_t longest_part(const struct ddpi_arena_op *op)
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

/* The smallest pieces that take everything at once, or large ones. */
static void set_pieces(struct ddpi_arena_op *op)
{
    uint32_t ranks = ddpi_arena_ranks(op->arena);
    bool parts = row_of(op)->in == DDPI_PARTS;
    size_t small = ddpi_arena_size(op->arena, DDPI_ARENA_SMALL) / (parts ? ranks : 1) / 64 * 64;
    op->room = op->longest <= small ? DDPI_ARENA_SMALL : DDPI_ARENA_LARGE;
    if (!parts && op->longest <= ddpi_arena_size(op->arena, DDPI_ARENA_TINY) &&
        (!row_of(op)->works || is_short(op)))
        op->room = DDPI_ARENA_TINY;
    op->piece = ddpi_arena_size(op->arena, op->room);
    op->block = op->piece / ranks / 64 * 64;
}

static void copy_own_part(struct ddpi_arena_op *op)
{
    if (op->own_copied || (!row_of(op)->out_of_each && op->task->call.operation != DDPI_SCATTER))
        return;
    struct ddpi_copy own = ddpi_task_own_copy(op->task, ddpi_arena_rank(op->arena));
    size_t ranks = ddpi_arena_ranks(op->arena);
    op->own_copied = true;
    if (own.len > DDPI_ARENA_STREAM / ranks / ranks)
        ddpi_stream_copy(own.to, own.from, own.len);
    else if (own.len > 0)
        memcpy(own.to, own.from, own.len);
}

void ddpi_arena_begin(struct ddpi_arena_op *op, struct ddpi_arena *arena, struct ddpi_task *task)
{
    *op = (struct ddpi_arena_op){.arena = arena, .task = task, .sent_before = task->bytes_sent};
    op->longest = longest_part(op);
    op->counted = !ddpi_call_is_in_pairs(&task->call); /* all ranks know all counts */
    set_pieces(op);
    ddpi_arena_spread(arena, op->room == DDPI_ARENA_LARGE ? 1 : SPREAD_EVERY);
    op->chunked = !is_short(op) && ddpi_chunks_are_possible(op);
    op->may_show = op->room == DDPI_ARENA_LARGE && ddpi_direct_is_possible(op);
    op->shows = op->may_show && ddpi_direct_find_own(op, &op->own);
    choose_way(op); /* on every rank at this place, so that all choose the same */
    if (!op->shows && !is_single(op))
        copy_own_part(op);
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
    copy_own_part(op);
}

/* ---- counts of uneven parts ---- */

/* For each rank what is sent to it, what is expected of it, and the longest part, in bytes. */
struct counts {
    uint64_t longest;
    struct {
        uint64_t sent, expected;
    } with[];
};

static size_t bytes_to(const struct ddpi_task *task, uint32_t me, uint32_t peer)
{
    struct ddpi_piece piece;
    return ddpi_task_to_peer(task, me, peer, &piece) ? piece.len : 0;
}

static size_t bytes_from(const struct ddpi_task *task, uint32_t me, uint32_t peer)
{
    struct ddpi_piece piece;
    return ddpi_task_from_peer(task, me, peer, &piece) ? piece.len : 0;
}

static void copy_counts_in(const struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    struct counts *counts = (struct counts *)(void *)piece_of(op, me);
    counts->longest = op->longest;
    for (uint32_t peer = 0; peer < ddpi_arena_ranks(op->arena); peer++) {
        counts->with[peer].sent = bytes_to(op->task, me, peer);
        counts->with[peer].expected = bytes_from(op->task, me, peer);
    }
}

/* false: *@ret_rank disagrees with this one. */
static bool take_counts(struct ddpi_arena_op *op, uint32_t *ret_rank)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    for (uint32_t peer = 0; peer < ddpi_arena_ranks(op->arena); peer++) {
        const struct counts *counts = (const struct counts *)(const void *)piece_of(op, peer);
        *ret_rank = peer;
        if (counts->with[me].sent != bytes_from(op->task, me, peer) ||
            counts->with[me].expected != bytes_to(op->task, me, peer))
            return false;
        uint64_t longest = counts->longest;
        if (longest > op->longest && longest <= PTRDIFF_MAX)
            op->longest = longest;
    }
    op->counted = true;
    set_pieces(op);
    choose_way(op);
    return true;
}

/* ---- stages ---- */

/* Where ranks outnumber the processors, the last one to arrive would do the work, and the kernel
 * make the others wait longer afterwards, so that all have had the same time: it would be last
 * again. So others may run first. */
static bool leaves_work(const struct ddpi_arena_op *op)
{
    return ddpi_arena_is_crowded(op->arena) && row_of(op)->works && !is_short(op) && !op->chunked;
}

static enum ddpi_arena_result start_round(struct ddpi_arena_op *op, struct ddp_error *err)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    if (!op->counted || is_single(op)) /* what each tells each other one fits into a small piece */
        op->room = DDPI_ARENA_SMALL;
    else if (op->room == DDPI_ARENA_LARGE && !op->shows &&
             ddpi_arena_grow(op->arena, err) != DDP_OK)
        return DDPI_ARENA_NO_ROOM;
    op->round = ddpi_arena_next_round(op->arena);
    uint64_t started_ns = start_clock(op);
    if (!op->checked)
        ddpi_arena_set_call(op->arena, op->round, &op->task->call);
    if (op->shows)
        ddpi_arena_set_buffers(op->arena, op->round, &op->own);
    else if (!op->counted)
        copy_counts_in(op);
    else if (is_single(op))
        ddpi_single_copy_show(op);
    else if (is_one_of(row_of(op)->copies_in, op, me))
        copy_all_in(op);
    stop_clock(op, started_ns);
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
    const struct ddpi_arena_row *row = row_of(op);
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
    note_meeting(op);
    copy_own_part(op);
    op->shows = false;
}

static void work_in_windows(struct ddpi_arena_op *op)
{
    withdraw_way(op);
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
    uint64_t started_ns = start_clock(op);
    ddpi_chunks_reduce(op, whole_at(op, NULL).len);
    stop_clock(op, started_ns);
    arrive_again(op);
}

/* The operation has read the buffers of others: it is over if they still belonged to it. Else it
 * waits for the rank that has failed to say why. */
static void end_reading(struct ddpi_arena_op *op)
{
    op->stage = ddpi_arena_any_left(op->arena) ? DDPI_ARENA_DOUBTS : DDPI_ARENA_OVER;
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
        set_pieces(op);
        return;
    }
    const struct ddpi_copy_timed last = timed(op);
    if (op->way.is_timed)
        ddpi_copy_note(&last, ns);
    ddpi_single_copy_count(op);
    end_reading(op);
}

/* All have arrived. */
static enum ddpi_arena_result meet(struct ddpi_arena_op *op, uint32_t *ret_rank)
{
    if (!op->checked && ddpi_arena_odd_call(op->arena, op->round, ret_rank))
        return DDPI_ARENA_MISMATCH;
    if (!op->checked) {
        note_last_time(op);
        note_meeting(op);
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
        return take_counts(op, ret_rank) ? DDPI_ARENA_WAITS : DDPI_ARENA_MISMATCH;
    }
    if (is_single(op)) {
        meet_single(op);
        return DDPI_ARENA_WAITS;
    }
    op->stage = DDPI_ARENA_COPY_OUT;
    if (!is_short(op))
        ddpi_arena_tell_arrived(op->arena);
    if (op->chunked) {
        meet_chunked(op);
    } else if (row_of(op)->works && !is_short(op)) {
        op->work = ddpi_arena_next_work(op->arena, op->round);
        uint64_t started_ns = start_clock(op);
        work(op);
        stop_clock(op, started_ns);
        op->stage = DDPI_ARENA_WORK;
    }
    return DDPI_ARENA_WAITS;
}

/* Read a stretch; after the last one arrive again, and tell whether it went well. While others
 * still read, this rank copies its own part. */
static void read_on(struct ddpi_arena_op *op)
{
    uint64_t started_ns = start_clock(op);
    enum ddpi_single_copy result = ddpi_single_copy_read(op);
    stop_clock(op, started_ns);
    if (result == DDPI_SINGLE_COPY_GOES_ON)
        return;
    ddpi_arena_tell_time(op->arena,
                         result == DDPI_SINGLE_COPY_REFUSED ? DDPI_NO_TIME : time_taken(op));
    arrive_again(op);
    copy_own_part(op);
}

/* All shares are finished. */
static void end_work(struct ddpi_arena_op *op)
{
    bool all = op->task->call.operation == DDPI_ALL_REDUCE;
    uint32_t rank = all ? DDPI_RESULT_OF_ALL : ddpi_arena_rank(op->arena);
    if (op->task->call.finite_check && ddpi_arena_is_non_finite(op->arena, op->round, rank))
        op->task->found_non_finite = true;
    if (op->direct)
        end_reading(op);
    else
        op->stage = DDPI_ARENA_COPY_OUT;
}

/* To the first byte of the next round. */
static void move_spot(struct ddpi_arena_op *op)
{
    struct ddpi_segments segments = ddpi_task_segments(op->task);
    ddpi_segments_skip(&segments, &op->spot, op->piece);
}

/* The next operation may be like this one. Of blocks, the first one that another rank reads. Not
 * for reductions of whole buffers: there it was measured to take as long as it saves. */
static void fetch_piece(const struct ddpi_arena_op *op)
{
    uint32_t me = ddpi_arena_rank(op->arena);
    bool has_blocks = row_of(op)->in == DDPI_PARTS;
    if (op->room == DDPI_ARENA_SMALL && !row_of(op)->works && !is_streamed(op) &&
        is_one_of(row_of(op)->copies_in, op, me))
        ddpi_arena_fetch_piece(op->arena, has_blocks && me == 0 ? op->block : 0,
                               at_most(op->longest, has_blocks ? op->block : op->piece));
}

static void finish_round(struct ddpi_arena_op *op)
{
    uint64_t started_ns = start_clock(op);
    if (is_one_of(row_of(op)->takes, op, ddpi_arena_rank(op->arena)))
        copy_all_out(op);
    stop_clock(op, started_ns);
    fetch_piece(op);
    if (is_short(op)) /* by now the others have seen this rank, so it costs less */
        ddpi_arena_tell_arrived(op->arena);
    if (op->task->list != NULL)
        move_spot(op);
    op->done += row_of(op)->in == DDPI_PARTS ? op->block : op->piece;
    op->stage = op->done < op->longest ? DDPI_ARENA_COPY_IN : DDPI_ARENA_OVER;
    if (op->stage == DDPI_ARENA_OVER)
        tell_time(op);
}

bool ddpi_arena_is_ready(const struct ddpi_arena_op *op)
{
    switch (op->stage) {
    case DDPI_ARENA_ARRIVE:
        return ddpi_arena_all_arrived(op->arena, op->round);
    case DDPI_ARENA_WORK:
        return ddpi_arena_all_finished(op->arena, op->round, op->work);
    case DDPI_ARENA_DOUBTS:
        return false;
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
        case DDPI_ARENA_DOUBTS: /* is never ready */
            break;
        case DDPI_ARENA_OVER:
            return DDPI_ARENA_COMPLETE;
        }
    }
    return result;
}

bool ddpi_arena_misses(const struct ddpi_arena_op *op, uint32_t rank)
{
    if (op->stage == DDPI_ARENA_DOUBTS)
        return ddpi_arena_has_left(op->arena, rank);
    return op->stage == DDPI_ARENA_WORK ? ddpi_arena_is_busy(op->arena, op->round, rank)
                                        : !ddpi_arena_has_arrived(op->arena, op->round, rank);
}
