/*
 * slices.c - slices of a task. Pure.
 */
#include "slices.h"

/* What slice @index has of a part of @count elements. */
static struct ddpi_chunk clip(const struct ddpi_slices *slices, uint64_t index, size_t count)
{
    size_t first = index > count / slices->width ? count : (size_t)index * slices->width;
    size_t left = count - first;
    return (struct ddpi_chunk){.first = first,
                               .count = left < slices->width ? left : slices->width};
}

static bool part_at(const struct ddpi_slices *slices, bool receives, uint32_t index,
                    struct ddpi_chunk *ret_part)
{
    const struct ddpi_task *task = slices->task;
    if (index >= slices->parts)
        return false;
    if (task->call.operation != DDPI_ALL_REDUCE)
        return ddpi_task_part(task, slices->rank, receives, index, ret_part);
    *ret_part = ddpi_ring_chunk(task->own, slices->ranks, index);
    return true;
}

static size_t longest_part(const struct ddpi_slices *slices)
{
    size_t longest = 0;
    for (unsigned side = 0; side < 2; side++) {
        struct ddpi_chunk part;
        for (uint32_t i = 0; part_at(slices, side == 1, i, &part); i++)
            if (part.count > longest)
                longest = part.count;
    }
    return longest;
}

struct ddpi_slices ddpi_slices_of(const struct ddpi_task *task, uint32_t rank, uint32_t ranks,
                                  size_t room)
{
    bool whole = task->call.operation == DDPI_REDUCE || task->call.operation == DDPI_BROADCAST ||
                 ddpi_call_shape(&task->call)->message;
    struct ddpi_slices slices = {
        .task = task, .rank = rank, .ranks = ranks, .parts = whole ? 1 : ranks};
    slices.width = room / task->element_size / slices.parts;
    size_t longest = longest_part(&slices);
    slices.count = longest > 0 ? (longest - 1) / slices.width + 1 : 1;
    return slices;
}

/* ---- the task of a slice ---- */

/* The elements of a slice in one of the buffers. */
static size_t slice_count(const struct ddpi_slices *slices, uint64_t index, bool receives)
{
    struct ddpi_chunk part;
    size_t sum = 0;
    for (uint32_t i = 0; part_at(slices, receives, i, &part); i++)
        sum += clip(slices, index, part.count).count;
    return sum;
}

/* One part after the other. */
static struct ddpi_parts clip_parts(const struct ddpi_slices *slices, uint64_t index,
                                    const struct ddpi_parts *parts, size_t *counts)
{
    if (parts->counts == NULL)
        return (struct ddpi_parts){0};
    for (uint32_t rank = 0; rank < slices->ranks; rank++)
        counts[rank] = clip(slices, index, parts->counts[rank]).count;
    return (struct ddpi_parts){.counts = counts};
}

struct ddpi_task ddpi_slice_task(const struct ddpi_slices *slices, uint64_t index,
                                 const uint8_t *send, uint8_t *recv, size_t *counts)
{
    struct ddpi_task task = *slices->task;
    task.send = task.send != NULL || task.list != NULL ? send : NULL;
    task.recv = task.recv != NULL || task.list != NULL ? recv : NULL;
    task.list = NULL;
    task.send_count = slice_count(slices, index, false);
    task.recv_count = slice_count(slices, index, true);
    task.count = task.send_count > task.recv_count ? task.send_count : task.recv_count;
    task.own =
        task.call.operation == DDPI_ALL_REDUCE ? task.count : clip(slices, index, task.own).count;
    if (task.uneven) {
        task.send_parts = clip_parts(slices, index, &task.send_parts, counts);
        task.recv_parts = clip_parts(slices, index, &task.recv_parts, counts + slices->ranks);
    }
    task.source = NULL;
    if (ddpi_call_shape(&task.call)->message)
        task.call.bytes = task.count * task.element_size;
    task.bytes_sent = task.bytes_received = task.record = 0;
    return task;
}

/* ---- what a slice has of the buffers ---- */

bool ddpi_slice_next(const struct ddpi_slices *slices, struct ddpi_slice_cursor *cursor,
                     struct ddpi_stretch *ret_stretch)
{
    size_t size = slices->task->element_size;
    struct ddpi_chunk part;
    *ret_stretch = (struct ddpi_stretch){.offset = cursor->offset};
    for (; part_at(slices, cursor->receives, cursor->part, &part); cursor->part++) {
        struct ddpi_chunk has = clip(slices, cursor->index, part.count);
        size_t at = (part.first + has.first) * size;
        if (has.count == 0)
            continue;
        if (ret_stretch->len > 0 && at != ret_stretch->at + ret_stretch->len)
            break;
        if (ret_stretch->len == 0)
            ret_stretch->at = at;
        ret_stretch->len += has.count * size;
    }
    cursor->offset += ret_stretch->len;
    return ret_stretch->len > 0;
}
