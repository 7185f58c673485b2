/*
 * direct_op.h - the work of an operation (arena_op.h) on buffers that all ranks see (windows.h):
 * ranks that run take shares of it, which they read from the buffers of all ranks and write to
 * those of all ranks. Nothing is copied through the pieces of the arena.
 *
 * Whether an operation goes this way all ranks conclude from the same facts: the call, the windows,
 * and what each has shown. The bits are those of the other way.
 */
#ifndef DDPI_DIRECT_OP_H
#define DDPI_DIRECT_OP_H

#include "arena_op.h"

/* Whether @op could go this way, if all buffers lie in windows; the same on all ranks. */
bool ddpi_direct_is_possible(const struct ddpi_arena_op *op);

/* Where the buffers of this rank are; false: one is in no window. */
bool ddpi_direct_find_own(const struct ddpi_arena_op *op, struct ddpi_arena_buffers *ret_buffers);

/* All have arrived: who has shown its buffers? The same on all ranks. */
enum ddpi_shown {
    DDPI_SHOWN_BY_NONE,
    DDPI_SHOWN_BY_SOME, /* or one of the windows is of no use */
    DDPI_SHOWN_NEW,     /* by all; but some of the windows not all ranks know yet */
    DDPI_SHOWN_BY_ALL,
};
enum ddpi_shown ddpi_direct_look(const struct ddpi_arena_op *op);

/* Find the buffers of all ranks, which are in windows that may have to be mapped. false: this rank
 * does not see one. */
bool ddpi_direct_find(const struct ddpi_arena_op *op);

/* Do shares of the work of the round until none is left. */
void ddpi_direct_work(struct ddpi_arena_op *op);

#endif
