/*
 * copy_way.h - which way the copies of an operation take, and how long that takes (copy_choice.h).
 * All ranks choose at the same place, so all choose the same.
 */
#ifndef DDPI_COPY_WAY_H
#define DDPI_COPY_WAY_H

#include "arena_method.h"

/* All ranks know op->longest. */
void ddpi_way_choose(struct ddpi_arena_op *op);

/* The operation takes none, as nothing is copied. */
void ddpi_way_withdraw(struct ddpi_arena_op *op);

/* The operation begins again, not through the kernel if that has refused. */
void ddpi_way_restart(struct ddpi_arena_op *op);

static inline bool ddpi_way_is_streamed(const struct ddpi_arena_op *op)
{
    return op->copies.way.path == DDPI_COPY_STREAMED;
}

static inline bool ddpi_way_is_kernel(const struct ddpi_arena_op *op)
{
    return op->copies.way.path == DDPI_COPY_KERNEL;
}

/* Copy @len bytes into a slot, on the way that was chosen. Of a pre-multiplied reduction the
 * factor is applied to them. */
void ddpi_way_copy_in(const struct ddpi_arena_op *op, uint8_t *to, const uint8_t *from, size_t len);

/* Copy @len bytes to where the caller wants them: past the caches if all ranks get more than those
 * have room for, unless @just_read: @to is in them. */
void ddpi_way_copy_out(const struct ddpi_arena_op *op, uint8_t *to, const uint8_t *from, size_t len,
                       bool just_read);

/* Around a step: the time between the two is noted, if the operation is timed. */
void ddpi_way_start_clock(struct ddpi_arena_op *op);
void ddpi_way_stop_clock(struct ddpi_arena_op *op);

/* Where ranks outnumber the processors, most of an operation is to wait for each other, so that
 * counts too, once all have called it: from here on. */
void ddpi_way_note_meeting(struct ddpi_arena_op *op);

/* In a step: what follows does not count, in this step and later ones. */
void ddpi_way_note_end(struct ddpi_arena_op *op);

/* At the end of the operation. */
void ddpi_way_tell_time(const struct ddpi_arena_op *op);

/* All have arrived, so all have told what the operation before this one took. */
void ddpi_way_note_last_time(const struct ddpi_arena_op *op);

#endif
