/*
 * chunks_op.h - an all_reduce (arena_op.h) in which every rank reduces one chunk of what a round
 * moves: where ranks have a processor each, or many bytes, and the buffers of a list are not short.
 * It copies in what the others reduce, and
 * reads its own chunk where it is; then all meet again, and it copies out what the others have
 * reduced. So of N bytes it copies N(R-1)/R in and out, not N; but a rank that does not run keeps
 * the others waiting.
 *
 * Whether an operation goes this way all ranks conclude from the call and the arena. The bits are
 * those of the other way.
 */
#ifndef DDPI_CHUNKS_OP_H
#define DDPI_CHUNKS_OP_H

#include "arena_op.h"

/* Whether @op, which is not short, goes this way; the same on all ranks. */
bool ddpi_chunks_are_possible(const struct ddpi_arena_op *op);

/* Copy in what the others reduce of the round's @len bytes. */
void ddpi_chunks_copy_in(const struct ddpi_arena_op *op, size_t len);

/* All have arrived: reduce this rank's chunk, for itself and, in its piece of the next round, for
 * the others. */
void ddpi_chunks_reduce(const struct ddpi_arena_op *op, size_t len);

/* All have arrived in the next round, which is now that of @op: copy out. */
void ddpi_chunks_copy_out(const struct ddpi_arena_op *op, size_t len);

#endif
