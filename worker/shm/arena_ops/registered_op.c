/*
 * registered_op.c - an operation on registered buffers (arena_method.h): those in windows
 * (windows.h), which all ranks see. Ranks that run take shares of the work, which they read from
 * the buffers of all ranks and write to those of all ranks. Nothing is copied through slots. Owns
 * nothing.
 *
 * In the first round each rank whose buffers are registered shows where they are. If all do, and
 * some windows are new, each maps them, and a second round tells whether all could. If only some
 * do, or a window is of no use, the operation begins again with another method.
 *
 * The bytes of an operation are a row of parts. A part has a source, or is reduced of those of all
 * ranks, and is written to one rank or to all. A share is a range of that row: no byte is written
 * by two ranks, and a byte that is read and written in place is so by one rank.
 */
#include "arena_method.h"
#include "copy_way.h"
#include "mem.h"
#include "reduce.h"
#include "slots.h"
#include "stream_copy.h"

#include <string.h>

enum {
    TILE = 16 * 1024, /* bytes of a result on their way to several ranks */
    SHARE = 32 * 1024,
};

/* Bytes of a part. */
static size_t part_size(const struct ddpi_arena_op *op)
{
    return op->task->own * op->task->element_size;
}

static size_t part_count(const struct ddpi_arena_op *op)
{
    size_t ranks = ddpi_arena_ranks(op->arena);
    enum ddpi_parting parts = ddpi_arena_op_shape(op)->parts;
    return parts == DDPI_ONE_PART ? 1 : parts == DDPI_RANK_PARTS ? ranks : ranks * ranks;
}

/* ---- which method ---- */

static struct ddpi_extents extents_of(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_call_extents(&op->task->call, rank, ddpi_arena_ranks(op->arena));
}

bool ddpi_registered_is_possible(const struct ddpi_arena_op *op)
{
    const struct ddpi_call *call = &op->task->call;
    const struct ddpi_windows *windows = ddpi_arena_windows(op->arena);
    return windows != NULL && !windows->refused && ddpi_slots_kind(op) == DDPI_SLOT_LARGE &&
           ddpi_arena_op_shape(op)->to != DDPI_NO_END && !op->task->uneven &&
           op->task->list == NULL &&
           (!ddpi_call_shape(call)->reduces || ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST);
}

bool ddpi_registered_find_own(struct ddpi_arena_op *op)
{
    const struct ddpi_task *task = op->task;
    struct ddpi_windows *windows = ddpi_arena_windows(op->arena);
    struct ddpi_extents extents = extents_of(op, ddpi_arena_rank(op->arena));
    struct ddpi_arena_buffers *own = &op->registered.own;
    size_t size = part_size(op);
    *own = (struct ddpi_arena_buffers){.factor = task->factor};
    return (extents.send == 0 ||
            ddpi_windows_spot(windows, task->send, extents.send * size, &own->send)) &&
           (extents.recv == 0 ||
            ddpi_windows_spot(windows, task->recv, extents.recv * size, &own->recv));
}

bool ddpi_registered_is_shown(const struct ddpi_arena_op *op)
{
    struct ddpi_arena_buffers buffers;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++)
        if (ddpi_arena_get_buffers(op->arena, op->round, rank, &buffers))
            return true;
    return false;
}

/* ---- what ranks have shown ---- */

/* The standing of a buffer with @parts parts, 0: there is none. */
static enum ddpi_window_standing standing_of(const struct ddpi_arena_op *op,
                                             const struct ddpi_window_spot *spot, size_t parts)
{
    return parts == 0
               ? DDPI_WINDOW_KNOWN
               : ddpi_windows_standing(ddpi_arena_windows(op->arena), spot, parts * part_size(op));
}

/* What this rank concludes, which has shown its buffers. All that have conclude the same. */
enum shown {
    SHOWN_BY_SOME, /* or one of the windows is of no use */
    SHOWN_NEW,     /* by all; but some of the windows not all ranks know yet */
    SHOWN_BY_ALL,
};

static enum shown look(const struct ddpi_arena_op *op)
{
    enum shown shown = SHOWN_BY_ALL;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_extents extents = extents_of(op, rank);
        struct ddpi_arena_buffers buffers;
        if (!ddpi_arena_get_buffers(op->arena, op->round, rank, &buffers))
            return SHOWN_BY_SOME;
        enum ddpi_window_standing send = standing_of(op, &buffers.send, extents.send);
        enum ddpi_window_standing recv = standing_of(op, &buffers.recv, extents.recv);
        if (send == DDPI_WINDOW_UNUSABLE || recv == DDPI_WINDOW_UNUSABLE)
            return SHOWN_BY_SOME;
        if (send == DDPI_WINDOW_UNKNOWN || recv == DDPI_WINDOW_UNKNOWN)
            shown = SHOWN_NEW;
    }
    return shown;
}

/* Where this rank sees a buffer with @parts parts, at least one; NULL: it does not. */
static uint8_t *see(const struct ddpi_arena_op *op, const struct ddpi_window_spot *spot,
                    size_t parts)
{
    struct ddpi_windows *windows = ddpi_arena_windows(op->arena);
    enum ddpi_window_standing standing = standing_of(op, spot, parts);
    if (standing == DDPI_WINDOW_UNUSABLE ||
        (standing == DDPI_WINDOW_UNKNOWN &&
         !ddpi_windows_map(windows, spot, parts * part_size(op))))
        return NULL;
    return ddpi_windows_at(windows, spot);
}

/* The buffers of all ranks, which are in windows that may have to be mapped. false: this rank does
 * not see one. */
static bool find_all(const struct ddpi_arena_op *op)
{
    struct ddpi_arena_view *views = ddpi_arena_views(op->arena);
    bool all = true;
    for (uint32_t rank = 0; rank < ddpi_arena_ranks(op->arena); rank++) {
        struct ddpi_extents extents = extents_of(op, rank);
        struct ddpi_arena_buffers buffers;
        (void)ddpi_arena_get_buffers(op->arena, op->round, rank, &buffers);
        views[rank] = (struct ddpi_arena_view){.factor = buffers.factor};
        if (extents.send > 0)
            views[rank].send = see(op, &buffers.send, extents.send);
        if (extents.recv > 0)
            views[rank].recv = see(op, &buffers.recv, extents.recv);
        all = all && (extents.send == 0 || views[rank].send != NULL) &&
              (extents.recv == 0 || views[rank].recv != NULL);
    }
    return all;
}

/* ---- work ---- */

/* A range of a part: bytes @at to @at + @len of it. */
struct range {
    const struct ddpi_arena_op *op;
    uint32_t from, to; /* the part's ranks; of all ranks, they mean nothing */
    bool streams;      /* results bypass the caches */
    size_t at, len;
};

/* Where @rank has the range to read, and where to write it. A buffer with a part for each rank
 * has the part of the other end. */
static const uint8_t *source_of(const struct range *range, uint32_t rank)
{
    const struct ddpi_arena_op *op = range->op;
    size_t part = extents_of(op, rank).send > 1 ? range->to : 0;
    return ddpi_arena_views(op->arena)[rank].send + part * part_size(op) + range->at;
}

static uint8_t *target_of(const struct range *range, uint32_t rank)
{
    const struct ddpi_arena_op *op = range->op;
    size_t part = extents_of(op, rank).recv > 1 ? range->from : 0;
    return ddpi_arena_views(op->arena)[rank].recv + part * part_size(op) + range->at;
}

static void put(const struct range *range, uint8_t *to, const uint8_t *from, size_t len)
{
    if (to == from)
        return;
    if (range->streams)
        ddpi_stream_copy(to, from, len);
    else
        memcpy(to, from, len);
}

/* Where a range goes to: @count ranks have room for it. */
struct targets {
    uint8_t *at[UINT8_MAX + 1];
    uint32_t count;
};

static void find_targets(const struct range *range, struct targets *ret)
{
    ret->count = 0;
    if (ddpi_arena_op_shape(range->op)->to != DDPI_END_ALL)
        ret->at[ret->count++] = target_of(range, range->to);
    else
        for (uint32_t rank = 0; rank < ddpi_arena_ranks(range->op->arena); rank++)
            ret->at[ret->count++] = target_of(range, rank);
}

/* Of ranks that have a factor each elements are multiplied first, as on the way into a slot. */
static struct ddpi_reduction reduction_of(const struct range *range, double *factors)
{
    const struct ddpi_arena_op *op = range->op;
    const struct ddpi_call *call = &op->task->call;
    struct ddpi_reduction work = {.nin = ddpi_arena_ranks(op->arena),
                                  .count = range->len / op->task->element_size,
                                  .dtype = call->dtype,
                                  .op = call->op,
                                  .divisor = 1,
                                  .factor = factors};
    if (call->op == DDP_AVERAGE)
        work.divisor = work.nin;
    for (uint32_t rank = 0; rank < work.nin; rank++) {
        work.in[rank] = source_of(range, rank);
        factors[rank] = ddpi_arena_views(op->arena)[rank].factor;
    }
    return work;
}

/* What is reduced in place is in the caches, as it has just been read. */
static bool is_in_place(const struct ddpi_reduction *work, const struct targets *targets)
{
    for (uint32_t k = 0; k < work->nin; k++)
        for (uint32_t i = 0; i < targets->count; i++)
            if (work->in[k] == targets->at[i])
                return true;
    return false;
}

/* Results go through a tile, and from there around the caches. */
static void stream_reduction(const struct range *range, struct ddpi_reduction *work,
                             const struct targets *targets)
{
    uint8_t tile[TILE] __attribute__((aligned(64)));
    size_t size = range->op->task->element_size;
    work->out[0] = tile;
    work->nout = 1;
    for (size_t done = 0, len; done < range->len; done += len) {
        len = range->len - done < TILE ? range->len - done : TILE;
        work->count = len / size;
        ddpi_reduce_many(work);
        for (uint32_t i = 0; i < targets->count; i++)
            ddpi_stream_copy(targets->at[i] + done, tile, len);
        for (uint32_t k = 0; k < work->nin; k++)
            work->in[k] = (const uint8_t *)work->in[k] + len;
    }
}

/* Note for the ranks that the result is for. */
static void note_non_finite(const struct range *range)
{
    const struct ddpi_arena_op *op = range->op;
    uint32_t rank =
        ddpi_arena_op_shape(op)->to == DDPI_END_ALL ? DDPI_ARENA_LINE_OF_ALL : range->to;
    ddpi_arena_note_non_finite(op->arena, op->round, rank);
}

static void reduce_range(const struct range *range, const struct targets *targets)
{
    double factors[DDPI_REDUCE_MOST];
    bool found = false;
    struct ddpi_reduction work = reduction_of(range, factors);
    work.non_finite = range->op->task->call.finite_check ? &found : NULL;
    if (range->streams && !is_in_place(&work, targets)) {
        stream_reduction(range, &work, targets);
    } else {
        for (; work.nout < targets->count; work.nout++)
            work.out[work.nout] = targets->at[work.nout];
        ddpi_reduce_many(&work);
    }
    if (found)
        note_non_finite(range);
}

static void copy_range(const struct range *range, const struct targets *targets)
{
    const uint8_t *from = source_of(range, range->from);
    for (size_t done = 0; done < range->len; done += TILE) {
        size_t len = range->len - done < TILE ? range->len - done : TILE;
        for (uint32_t i = 0; i < targets->count; i++)
            put(range, targets->at[i] + done, from + done, len);
    }
}

/* The ranks that @part comes from and goes to. */
static void name_ends(struct range *range, size_t part)
{
    const struct ddpi_arena_op *op = range->op;
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    size_t ranks = ddpi_arena_ranks(op->arena);
    uint32_t root = op->task->call.root;
    range->from = shape->from == DDPI_END_ROOT
                      ? root
                      : (uint32_t)(part / (shape->parts == DDPI_PAIR_PARTS ? ranks : 1));
    range->to = shape->to == DDPI_END_ROOT ? root : (uint32_t)(part % ranks);
}

static void do_range(const struct range *range)
{
    struct targets targets;
    find_targets(range, &targets);
    if (ddpi_arena_op_shape(range->op)->from == DDPI_END_ALL)
        reduce_range(range, &targets);
    else
        copy_range(range, &targets);
}

/* Bytes @from to @to of the row of parts. */
static void do_share(const struct ddpi_arena_op *op, size_t from, size_t to)
{
    size_t size = part_size(op);
    struct range range = {.op = op,
                          .streams = size * part_count(op) * ddpi_arena_ranks(op->arena) >
                                     DDPI_ARENA_STREAM};
    while (from < to) {
        size_t part = from / size, end = (part + 1) * size;
        range.at = from - part * size;
        range.len = (to < end ? to : end) - from;
        name_ends(&range, part);
        do_range(&range);
        from += range.len;
    }
}

static void do_shares(struct ddpi_arena_op *op)
{
    size_t all = part_size(op) * part_count(op);
    size_t most = (all + DDPI_ARENA_SHARES - 1) / DDPI_ARENA_SHARES;
    size_t size = ddpi_round_up(most, SHARE); /* a multiple of every element's size */
    uint32_t count = (uint32_t)((all + size - 1) / size), share;
    op->work = ddpi_arena_next_work(op->arena, op->round);
    ddpi_arena_set_busy(op->arena, op->round);
    while (ddpi_arena_claim(op->arena, op->round, op->work, count, &share)) {
        size_t from = share * size;
        do_share(op, from, all - from < size ? all : from + size);
        ddpi_arena_finish(op->arena, op->round, op->work, count, share);
    }
    ddpi_arena_set_busy(op->arena, 0);
}

/* ---- steps ---- */

static enum ddpi_arena_step show(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    ddpi_arena_op_enter_round(op);
    ddpi_arena_set_buffers(op->arena, op->round, &op->registered.own);
    return ddpi_arena_op_arrive_for_work(op);
}

static enum ddpi_arena_step map(struct ddpi_arena_op *op, struct ddp_error *err)
{
    enum shown shown = look(op);
    (void)err;
    op->registered.maps = shown == SHOWN_NEW;
    bool found = shown != SHOWN_BY_SOME && find_all(op);
    if (shown != SHOWN_NEW)
        return found ? DDPI_ARENA_STEP_NEXT : DDPI_ARENA_STEP_SWITCH;
    ddpi_arena_op_enter_round(op);
    if (!found) {
        op->refusal.why = DDPI_ARENA_REFUSAL_UNMAPPED;
        ddpi_arena_refuse(op->arena, op->round);
    }
    return ddpi_arena_op_arrive(op);
}

/* After a round of map() all have told whether they could. */
static enum ddpi_arena_step work(struct ddpi_arena_op *op, struct ddp_error *err)
{
    (void)err;
    if (op->registered.maps) {
        bool usable = !ddpi_arena_is_refused(op->arena, op->round);
        ddpi_windows_settle(ddpi_arena_windows(op->arena), usable);
        if (!usable)
            return DDPI_ARENA_STEP_SWITCH;
    }
    ddpi_way_withdraw(op);
    do_shares(op);
    return DDPI_ARENA_STEP_AWAIT_SHARES;
}

static enum ddpi_arena_step end(struct ddpi_arena_op *op, struct ddp_error *err)
{
    bool all = ddpi_arena_op_shape(op)->to == DDPI_END_ALL;
    uint32_t rank = all ? DDPI_ARENA_LINE_OF_ALL : ddpi_arena_rank(op->arena);
    (void)err;
    if (op->task->call.finite_check && ddpi_arena_is_non_finite(op->arena, op->round, rank))
        op->task->found_non_finite = true;
    return DDPI_ARENA_STEP_OVER;
}

const struct ddpi_arena_method ddpi_registered_method = {.steps = {show, map, work, end}};
