/*
 * pieces_op.h - what a rank copies into its piece of the arena, what all reduce there, and what
 * each takes out, in one round of an operation (arena_rows.h). Owns nothing, and knows no stages.
 */
#ifndef DDPI_PIECES_OP_H
#define DDPI_PIECES_OP_H

#include "arena_op.h"

/* ---- sizes ---- */

/* Bytes of the longest part that passes between two ranks, or of the buffer, as far as this rank
 * knows: the number of rounds, if all ranks know the same. */
size_t ddpi_pieces_longest_part(const struct ddpi_arena_op *op);

/* Take the smallest pieces that have room for everything at once, or large ones. */
void ddpi_pieces_set_sizes(struct ddpi_arena_op *op);

/* Whether each rank that wants the result reduces all pieces for itself: for few bytes that takes
 * less time than to share the work, which is one more meeting. */
bool ddpi_pieces_are_short(const struct ddpi_arena_op *op);

/* Bytes of the buffer that belong to this round, of operations that reduce. */
size_t ddpi_pieces_len(const struct ddpi_arena_op *op);

/* ---- a round ---- */

void ddpi_pieces_copy_in(const struct ddpi_arena_op *op);

/* Do shares of the reduction until none is left. */
void ddpi_pieces_work(struct ddpi_arena_op *op);

void ddpi_pieces_copy_out(const struct ddpi_arena_op *op);

/* What this rank has for itself, unless it is copied already. */
void ddpi_pieces_copy_own_part(struct ddpi_arena_op *op);

/* Of a list of buffers: to the first byte of the next round. */
void ddpi_pieces_move_spot(struct ddpi_arena_op *op);

/* The next operation may be like this one: fetch what this rank will write. Of blocks, the first
 * one that another rank reads. Not for reductions of whole buffers: there it was measured to take
 * as long as it saves. */
void ddpi_pieces_fetch_next(const struct ddpi_arena_op *op);

#endif
