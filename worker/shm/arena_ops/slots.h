/*
 * slots.h - the bytes of an operation that one round moves through the slots of an arena: what a
 * rank copies into its own, and what it takes out (shape.h). Owns nothing.
 *
 * Of operations with a part for each rank a slot has a block for each.
 */
#ifndef DDPI_SLOTS_H
#define DDPI_SLOTS_H

#include "arena_method.h"

/* The smallest slots that have room for everything at once, or large ones. */
enum ddpi_slot_kind ddpi_slots_kind(const struct ddpi_arena_op *op);

/* Prepare op->slots: it begins with the first byte. And copy this rank's own part. */
void ddpi_slots_begin(struct ddpi_arena_op *op);

/* Copy what this rank has for itself to where that belongs, unless it is there. */
void ddpi_slots_copy_own_part(struct ddpi_arena_op *op);

/* The slot of @rank in this round, or that of the result with @rank = ranks. */
static inline uint8_t *ddpi_slots_at(const struct ddpi_arena_op *op, uint32_t rank)
{
    return ddpi_arena_slot(op->arena, op->round, rank, op->slots.kind);
}

/* Bytes of the buffer that belong to this round, of operations that reduce. */
size_t ddpi_slots_len(const struct ddpi_arena_op *op);

/* Copy what this rank has for others into its slot. */
void ddpi_slots_copy_in(const struct ddpi_arena_op *op);

/* Reduce @len bytes at @offset of the slots of all ranks to @out; returns whether the call asks for
 * a finite check, and there is an inf or a NaN. */
bool ddpi_slots_reduce(const struct ddpi_arena_op *op, size_t offset, size_t len, uint8_t *out);

/* Copy out what is for this rank: of the slots of others, or reduced of all slots if @reduces, or
 * of the slot that has the result. */
void ddpi_slots_take(const struct ddpi_arena_op *op, bool reduces);

/* To the next round; false: this was the last one. */
bool ddpi_slots_move_on(struct ddpi_arena_op *op);

/* The next operation may be like this one: fetch what this rank will write. Of blocks, the first
 * one that another rank reads. Not for reductions of whole buffers: there it was measured to take
 * as long as it saves. */
void ddpi_slots_fetch_next(const struct ddpi_arena_op *op);

#endif
