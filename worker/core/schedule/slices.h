/*
 * slices.h - carries out a task in slices, through buffers of a fixed size: each is the same
 * operation on some elements of every part. For memory from which data has to be copied first. Pure
 * arithmetic.
 *
 * Slice k has elements [k * width, (k + 1) * width) of each part. An all-reduce has the chunks of
 * the ring as parts, so ranks reduce each element in the same order as they do without slices, and
 * the result has the same bits.
 */
#ifndef DDPI_SLICES_H
#define DDPI_SLICES_H

#include "task.h"

struct ddpi_slices {
    const struct ddpi_task *task;
    uint32_t rank, ranks;
    uint32_t parts; /* of the buffer that has the most */
    size_t width;   /* elements; the same on all ranks */
    uint64_t count; /* slices, at least 1; as far as this rank knows, if ddpi_call.parts is 1 */
};

/* Slices of which each buffer has at most @room bytes; @room must hold an element for each rank. */
struct ddpi_slices ddpi_slices_of(const struct ddpi_task *task, uint32_t rank, uint32_t ranks,
                                  size_t room);

/* The operation on slice @index, between buffers that have the slice only. @counts: room for two
 * numbers for each rank, which the task uses if parts are uneven. */
struct ddpi_task ddpi_slice_task(const struct ddpi_slices *slices, uint64_t index,
                                 const uint8_t *send, uint8_t *recv, size_t *counts);

/* A stretch of bytes: from @at of the task's buffer, and from @offset of the slice's. */
struct ddpi_stretch {
    size_t at, offset, len;
};

/* Walks the stretches of a slice; starts as @index and @receives (the buffer) with zeros behind. */
struct ddpi_slice_cursor {
    uint64_t index;
    bool receives;
    uint32_t part;
    size_t offset;
};

/* The next stretch; false: there is none. */
bool ddpi_slice_next(const struct ddpi_slices *slices, struct ddpi_slice_cursor *cursor,
                     struct ddpi_stretch *ret_stretch);

#endif
