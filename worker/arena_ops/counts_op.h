/*
 * counts_op.h - the first round of an operation of which each rank knows only its own counts: it
 * tells each other one how many bytes it sends to it and expects of it. Owns nothing.
 */
#ifndef DDPI_COUNTS_OP_H
#define DDPI_COUNTS_OP_H

#include "arena_op.h"

/* Copy them into this rank's piece, before it arrives. */
void ddpi_counts_show(const struct ddpi_arena_op *op);

/* All have arrived: from now on op->longest is the same on all ranks. false: *@ret_rank disagrees
 * with this one. */
bool ddpi_counts_take(struct ddpi_arena_op *op, uint32_t *ret_rank);

#endif
