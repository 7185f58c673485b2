/*
 * direct_op.c - see direct_op.h. Owns nothing.
 *
 * The bytes of an operation are a row of pieces. A piece has a source, or is reduced of those of
 * all ranks, and is written to one rank or to all. A share is a stretch of that row: no byte is
 * written by two ranks, and a byte that is read and written in place is so by one rank.
 */
#include "direct_op.h"

#include "mem.h"
#include "reduce.h"
#include "stream_copy.h"

#include <string.h>

/* Which ranks a piece comes from, or goes to; and the buffer's part of it. */
enum end { NO_END, ROOT, PIECE, ALL };

/* How many pieces there are: one, one for each rank, or one for each pair. */
enum pieces { SINGLE, RANKS, PAIRS };

static const struct row {
    enum pieces pieces;
    enum end from, to; /* PIECE: the rank that the piece is named by */
} rows[] = {
    [DDPI_BROADCAST] = {SINGLE, ROOT, ALL},      [DDPI_ALL_REDUCE] = {SINGLE, ALL, ALL},
    [DDPI_REDUCE] = {SINGLE, ALL, ROOT},         [DDPI_ALL_GATHER] = {RANKS, PIECE, ALL},
    [DDPI_GATHER] = {RANKS, PIECE, ROOT},        [DDPI_SCATTER] = {RANKS, ROOT, PIECE},
    [DDPI_REDUCE_SCATTER] = {RANKS, ALL, PIECE}, [DDPI_ALL_TO_ALL] = {PAIRS, PIECE, PIECE},
};

enum {
    TILE = 16 * 1024, /* bytes of a result on their way to several ranks */
    SHARE = 32 * 1024,
};

static const struct row *row_of(const struct ddpi_arena_op *op)
{
    return &rows[op->task->call.operation];
}

/* Bytes of a piece. */
static size_t piece_size(const struct ddpi_arena_op *op)
{
    return op->task->own * op->task->element_size;
}

static size_t piece_count(const struct ddpi_arena_op *op)
{
    size_t ranks = ddpi_arena_ranks(op->arena);
    enum pieces pieces = row_of(op)->pieces;
    return pieces == SINGLE ? 1 : pieces == RANKS ? ranks : ranks * ranks;
}

/* ---- which way ---- */

bool ddpi_direct_is_possible(const struct ddpi_arena_op *op)
{
    const struct ddpi_call *call = &op->task->call;
    const struct ddpi_windows *windows = ddpi_arena_windows(op->arena);
    return windows != NULL && !windows->refused &&
           (size_t)call->operation < sizeof rows / sizeof *rows && row_of(op)->to != NO_END &&
           !op->task->uneven && op->task->list == NULL &&
           (!ddpi_call_reduces(call) || ddpi_arena_ranks(op->arena) <= DDPI_REDUCE_MOST);
}

static struct ddpi_extents extents_of(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_call_extents(&op->task->call, rank, ddpi_arena_ranks(op->arena));
}

bool ddpi_direct_find_own(const struct ddpi_arena_op *op, struct ddpi_arena_buffers *ret)
{
    const struct ddpi_task *task = op->task;
    struct ddpi_windows *windows = ddpi_arena_windows(op->arena);
    struct ddpi_extents extents = extents_of(op, ddpi_arena_rank(op->arena));
    size_t size = piece_size(op);
    *ret = (struct ddpi_arena_buffers){.factor = task->factor};
    return (extents.send == 0 ||
            ddpi_windows_spot(windows, task->send, extents.send * size, &ret->send)) &&
           (extents.recv == 0 ||
            ddpi_windows_spot(windows, task->recv, extents.recv * size, &ret->recv));
}

/* The standing of a buffer with @parts parts, 0: there is none. */
static enum ddpi_window_standing standing_of(const struct ddpi_arena_op *op,
                                             const struct ddpi_window_spot *spot, size_t parts)
{
    return parts == 0
               ? DDPI_WINDOW_KNOWN
               : ddpi_windows_standing(ddpi_arena_windows(op->arena), spot, parts * piece_size(op));
}

enum ddpi_shown ddpi_direct_look(const struct ddpi_arena_op *op)
{
    uint32_t ranks = ddpi_arena_ranks(op->arena), shown = 0;
    bool usable = true, known = true;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct ddpi_extents extents = extents_of(op, rank);
        struct ddpi_arena_buffers buffers;
        if (!ddpi_arena_get_buffers(op->arena, op->round, rank, &buffers))
            continue;
        enum ddpi_window_standing send = standing_of(op, &buffers.send, extents.send);
        enum ddpi_window_standing recv = standing_of(op, &buffers.recv, extents.recv);
        usable = usable && send != DDPI_WINDOW_UNUSABLE && recv != DDPI_WINDOW_UNUSABLE;
        known = known && send == DDPI_WINDOW_KNOWN && recv == DDPI_WINDOW_KNOWN;
        shown++;
    }
    if (shown == 0)
        return DDPI_SHOWN_BY_NONE;
    if (shown < ranks || !usable)
        return DDPI_SHOWN_BY_SOME;
    return known ? DDPI_SHOWN_BY_ALL : DDPI_SHOWN_NEW;
}

/* Where this rank sees a buffer with @parts parts, at least one; NULL: it does not. */
static uint8_t *see(const struct ddpi_arena_op *op, const struct ddpi_window_spot *spot,
                    size_t parts)
{
    struct ddpi_windows *windows = ddpi_arena_windows(op->arena);
    enum ddpi_window_standing standing = standing_of(op, spot, parts);
    if (standing == DDPI_WINDOW_UNUSABLE ||
        (standing == DDPI_WINDOW_UNKNOWN &&
         !ddpi_windows_map(windows, spot, parts * piece_size(op))))
        return NULL;
    return ddpi_windows_at(windows, spot);
}

bool ddpi_direct_find(const struct ddpi_arena_op *op)
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

/* A stretch of a piece: bytes @at to @at + @len of it. */
struct stretch {
    const struct ddpi_arena_op *op;
    uint32_t from, to; /* the piece's ranks; where the row says ALL, they mean nothing */
    bool streams;      /* results bypass the caches */
    size_t at, len;
};

/* Where @rank has the stretch to read, and where to write it. A buffer with a part for each rank
 * has the part of the other end. */
static const uint8_t *source_of(const struct stretch *stretch, uint32_t rank)
{
    const struct ddpi_arena_op *op = stretch->op;
    size_t part = extents_of(op, rank).send > 1 ? stretch->to : 0;
    return ddpi_arena_views(op->arena)[rank].send + part * piece_size(op) + stretch->at;
}

static uint8_t *target_of(const struct stretch *stretch, uint32_t rank)
{
    const struct ddpi_arena_op *op = stretch->op;
    size_t part = extents_of(op, rank).recv > 1 ? stretch->from : 0;
    return ddpi_arena_views(op->arena)[rank].recv + part * piece_size(op) + stretch->at;
}

static void put(const struct stretch *stretch, uint8_t *to, const uint8_t *from, size_t len)
{
    if (to == from)
        return;
    if (stretch->streams)
        ddpi_stream_copy(to, from, len);
    else
        memcpy(to, from, len);
}

/* Where a stretch goes to: @count ranks have room for it. */
struct targets {
    uint8_t *at[UINT8_MAX + 1];
    uint32_t count;
};

static void find_targets(const struct stretch *stretch, struct targets *ret)
{
    ret->count = 0;
    if (row_of(stretch->op)->to != ALL)
        ret->at[ret->count++] = target_of(stretch, stretch->to);
    else
        for (uint32_t rank = 0; rank < ddpi_arena_ranks(stretch->op->arena); rank++)
            ret->at[ret->count++] = target_of(stretch, rank);
}

/* Of ranks that have a factor each elements are multiplied first, as on the way into a piece. */
static struct ddpi_reduction reduction_of(const struct stretch *stretch, double *factors)
{
    const struct ddpi_arena_op *op = stretch->op;
    const struct ddpi_call *call = &op->task->call;
    struct ddpi_reduction work = {.nin = ddpi_arena_ranks(op->arena),
                                  .count = stretch->len / op->task->element_size,
                                  .dtype = call->dtype,
                                  .op = call->op,
                                  .divisor = 1,
                                  .factor = factors};
    if (call->op == DDP_AVERAGE)
        work.divisor = work.nin;
    for (uint32_t rank = 0; rank < work.nin; rank++) {
        work.in[rank] = source_of(stretch, rank);
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
static void stream_reduction(const struct stretch *stretch, struct ddpi_reduction *work,
                             const struct targets *targets)
{
    uint8_t tile[TILE] __attribute__((aligned(64)));
    size_t size = stretch->op->task->element_size;
    work->out[0] = tile;
    work->nout = 1;
    for (size_t done = 0, len; done < stretch->len; done += len) {
        len = stretch->len - done < TILE ? stretch->len - done : TILE;
        work->count = len / size;
        ddpi_reduce_many(work);
        for (uint32_t i = 0; i < targets->count; i++)
            ddpi_stream_copy(targets->at[i] + done, tile, len);
        for (uint32_t k = 0; k < work->nin; k++)
            work->in[k] = (const uint8_t *)work->in[k] + len;
    }
}

/* Note for the ranks that the result is for. */
static void note_non_finite(const struct stretch *stretch)
{
    const struct ddpi_arena_op *op = stretch->op;
    uint32_t rank = row_of(op)->to == ALL ? DDPI_RESULT_OF_ALL : stretch->to;
    ddpi_arena_note_non_finite(op->arena, op->round, rank);
}

static void reduce_stretch(const struct stretch *stretch, const struct targets *targets)
{
    double factors[DDPI_REDUCE_MOST];
    bool found = false;
    struct ddpi_reduction work = reduction_of(stretch, factors);
    work.non_finite = stretch->op->task->call.finite_check ? &found : NULL;
    if (stretch->streams && !is_in_place(&work, targets)) {
        stream_reduction(stretch, &work, targets);
    } else {
        for (; work.nout < targets->count; work.nout++)
            work.out[work.nout] = targets->at[work.nout];
        ddpi_reduce_many(&work);
    }
    if (found)
        note_non_finite(stretch);
}

static void copy_stretch(const struct stretch *stretch, const struct targets *targets)
{
    const uint8_t *from = source_of(stretch, stretch->from);
    for (size_t done = 0; done < stretch->len; done += TILE) {
        size_t len = stretch->len - done < TILE ? stretch->len - done : TILE;
        for (uint32_t i = 0; i < targets->count; i++)
            put(stretch, targets->at[i] + done, from + done, len);
    }
}

/* The ranks that piece @piece comes from and goes to. */
static void name_ends(struct stretch *stretch, size_t piece)
{
    const struct ddpi_arena_op *op = stretch->op;
    const struct row *row = row_of(op);
    size_t ranks = ddpi_arena_ranks(op->arena);
    uint32_t root = op->task->call.root;
    stretch->from =
        row->from == ROOT ? root : (uint32_t)(piece / (row->pieces == PAIRS ? ranks : 1));
    stretch->to = row->to == ROOT ? root : (uint32_t)(piece % ranks);
}

static void do_stretch(const struct stretch *stretch)
{
    struct targets targets;
    find_targets(stretch, &targets);
    if (row_of(stretch->op)->from == ALL)
        reduce_stretch(stretch, &targets);
    else
        copy_stretch(stretch, &targets);
}

/* Bytes @from to @to of the row of pieces. */
static void do_share(const struct ddpi_arena_op *op, size_t from, size_t to)
{
    size_t size = piece_size(op);
    struct stretch stretch = {.op = op,
                              .streams = size * piece_count(op) * ddpi_arena_ranks(op->arena) >
                                         DDPI_ARENA_STREAM};
    while (from < to) {
        size_t piece = from / size, end = (piece + 1) * size;
        stretch.at = from - piece * size;
        stretch.len = (to < end ? to : end) - from;
        name_ends(&stretch, piece);
        do_stretch(&stretch);
        from += stretch.len;
    }
}

void ddpi_direct_work(struct ddpi_arena_op *op)
{
    size_t all = piece_size(op) * piece_count(op);
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
