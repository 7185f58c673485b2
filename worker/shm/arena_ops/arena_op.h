/*
 * arena_op.h - an operation of all ranks through an arena. It never blocks: it is advanced.
 *
 * A method (arena_method.h) carries it out, in steps: short, through slots, in chunks, in
 * registered buffers, or with the kernel's copies. All ranks choose the same one from what they all
 * know. A method that is refused gives way to another one, and the operation begins again.
 *
 * The numeric rules are the same for all methods: elements are reduced in the order of ranks with
 * one rounding, so the bits depend neither on sizes nor on who runs when.
 */
#ifndef DDPI_ARENA_OP_H
#define DDPI_ARENA_OP_H

#include "arena_method.h"

enum ddpi_arena_result {
    DDPI_ARENA_RESULT_WAITS, /* for other ranks */
    DDPI_ARENA_RESULT_COMPLETE,
    DDPI_ARENA_RESULT_FAILED,   /* another rank has, and its note is there */
    DDPI_ARENA_RESULT_MISMATCH, /* @odd has called something else, or this with another count */
    DDPI_ARENA_RESULT_NO_ROOM,  /* shared memory is exhausted: @err has the sentence */
};

void ddpi_arena_begin(struct ddpi_arena_op *op, struct ddpi_arena *arena, struct ddpi_task *task);

/* The same for @op that has carried out a task with the same call, whose counts all ranks know:
 * what was computed of few bytes is used again. */
void ddpi_arena_begin_again(struct ddpi_arena_op *op, struct ddpi_task *task);

/* Go on as far as possible. */
enum ddpi_arena_result ddpi_arena_advance(struct ddpi_arena_op *op, struct ddp_error *err);

/* Whether the operation can go on. */
bool ddpi_arena_is_ready(const struct ddpi_arena_op *op);

/* Whether it waits for @rank: that has not arrived in the current round, or has not finished its
 * shares, or has failed. If it waits for none, all have come since. */
bool ddpi_arena_misses(const struct ddpi_arena_op *op, uint32_t rank);

#endif
