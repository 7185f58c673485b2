/*
 * arena_op.h - an operation of all ranks through an arena. It never blocks: it is advanced.
 *
 * The numeric rules are those of `direct`: elements are reduced in the order of ranks with one
 * rounding, so the bits depend neither on sizes nor on who runs when.
 */
#ifndef DDPI_ARENA_OP_H
#define DDPI_ARENA_OP_H

#include "arena.h"
#include "arena_rows.h"
#include "task.h"

enum {
    DDPI_RESULT_OF_ALL = 0, /* the rank whose line tells what is true of the result of all */
    DDPI_ARENA_STREAM = 16 * 1024 * 1024, /* bytes of all beyond which results bypass the caches */
};

enum ddpi_arena_stage {
    DDPI_ARENA_COPY_IN,
    DDPI_ARENA_ARRIVE, /* waits until all have arrived */
    DDPI_ARENA_READ,   /* reads the buffers of others (single_copy_op.h) */
    DDPI_ARENA_WORK,   /* waits until all shares of the work are finished */
    DDPI_ARENA_COPY_OUT,
    DDPI_ARENA_FAILS, /* is done, but a rank has failed in it: waits until that one has said why */
    DDPI_ARENA_OVER,
};

struct ddpi_arena_op {
    struct ddpi_arena *arena;
    struct ddpi_task *task;
    enum ddpi_arena_stage stage;
    enum ddpi_arena_room room;
    bool checked;    /* all ranks have called the same */
    bool counted;    /* the counts of uneven parts are exchanged */
    bool may_show;   /* this is the first round, in which ranks may show buffers in windows */
    bool shows;      /* this one does; it copies nothing in */
    bool maps;       /* all do, and this round tells whether each could map what was new to it */
    bool unmapped;   /* this rank could not */
    bool direct;     /* all buffers are in windows, and nothing is copied through pieces */
    bool chunked;    /* each rank reduces a chunk (chunks_op.h) */
    bool worked;     /* this rank has reduced its chunk, or read others, and has arrived again */
    bool own_copied; /* what this rank has for itself is where it belongs */
    uint32_t reads_from;      /* how many other ranks it has read from */
    int unread_errno;         /* why it could not read a rank (errno); 0: it could */
    uint32_t unread;          /* that rank */
    struct ddpi_copy_way way; /* which bytes take from one rank to another */
    uint64_t met_ns;          /* if timed: when all had called it, less what was spent before */
    uint64_t spent_ns;        /* if timed: how long copies and reductions have taken until now */
    struct ddpi_arena_buffers own; /* if it shows */
    size_t sent_before;            /* what the task had sent before the operation */
    size_t piece; /* bytes of a piece that are used, a multiple of the element size */
    size_t block; /* and of the part of each rank in it, for operations with such parts */
    size_t done; /* bytes of the longest part, or of the buffer, in earlier rounds; or that are read
                    of a part */
    size_t longest;        /* bytes to be done */
    struct ddpi_spot spot; /* of a list of buffers: where byte @done is */
    uint64_t round;
    uint64_t work;
};

static inline const struct ddpi_arena_row *ddpi_arena_op_row(const struct ddpi_arena_op *op)
{
    return ddpi_arena_row(op->task->call.operation);
}

/* The piece of @rank in this round, or that of the result with @rank = ranks. */
static inline uint8_t *ddpi_arena_op_piece(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_arena_piece(op->arena, op->round, rank, op->room);
}

enum ddpi_arena_result {
    DDPI_ARENA_WAITS, /* for other ranks */
    DDPI_ARENA_COMPLETE,
    DDPI_ARENA_FAILED,   /* another rank has, and its note is there */
    DDPI_ARENA_MISMATCH, /* *@ret_rank has called something else, or this with another count */
    DDPI_ARENA_NO_ROOM,  /* shared memory is exhausted: @err has the sentence */
};

void ddpi_arena_begin(struct ddpi_arena_op *op, struct ddpi_arena *arena, struct ddpi_task *task);

/* The same for @op that has carried out a task with the same call, whose counts all ranks know:
 * what was computed of few bytes is used again. */
void ddpi_arena_begin_again(struct ddpi_arena_op *op, struct ddpi_task *task);

/* Go on as far as possible. */
enum ddpi_arena_result ddpi_arena_advance(struct ddpi_arena_op *op, uint32_t *ret_rank,
                                          struct ddp_error *err);

/* Whether the operation can go on. */
bool ddpi_arena_is_ready(const struct ddpi_arena_op *op);

/* Whether it waits for @rank: that has not arrived in the current round, or has not finished its
 * shares, or has failed. If it waits for none, all have come since. */
bool ddpi_arena_misses(const struct ddpi_arena_op *op, uint32_t rank);

#endif
