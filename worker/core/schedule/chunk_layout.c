/*
 * chunk_layout.c - addresses of chunks, for the three ways in which a task uses memory:
 *
 *   whole      all_reduce, broadcast, all_gather: chunks are kept where the result will be
 *   partials   reduce, reduce_scatter: finished chunks are kept there, the others in scratch
 *   gathered   `direct`: the contributions of all ranks are kept in scratch
 */
#include "chunk_layout.h"

static bool is_gathered(const struct ddpi_layout *layout)
{
    return layout->gathered;
}

static bool is_whole(const struct ddpi_layout *layout)
{
    return !is_gathered(layout) && layout->ring->kind != DDPI_RING_REDUCE &&
           layout->ring->kind != DDPI_RING_REDUCE_SCATTER;
}

/* Elements that each rank contributes; between its parts may be gaps. */
static size_t gathered_count(const struct ddpi_layout *layout)
{
    size_t count = 0;
    if (layout->parts == NULL)
        return layout->count;
    for (uint32_t rank = 0; rank < layout->ring->nranks; rank++)
        count += ddpi_parts_at(layout->parts, 0, rank).count;
    return count;
}

static struct ddpi_chunk chunk_of(const struct ddpi_layout *layout, uint32_t chunk)
{
    if (is_gathered(layout))
        return (struct ddpi_chunk){.first = 0, .count = gathered_count(layout)};
    if (layout->parts != NULL)
        return ddpi_parts_at(layout->parts, 0, chunk);
    return ddpi_ring_chunk(layout->count, ddpi_ring_chunks(layout->ring), chunk);
}

/* Elements of each chunk for which scratch has room. */
static size_t slice(const struct ddpi_layout *layout)
{
    return layout->scratch_size / layout->element_size / ddpi_ring_chunks(layout->ring);
}

static size_t longest(const struct ddpi_layout *layout)
{
    size_t count = chunk_of(layout, 0).count; /* of equal chunks no other is longer */
    for (uint32_t chunk = 1; layout->parts != NULL && chunk < layout->ring->nranks; chunk++)
        if (chunk_of(layout, chunk).count > count)
            count = chunk_of(layout, chunk).count;
    return count;
}

static size_t slices_of(const struct ddpi_layout *layout, size_t count)
{
    return count == 0 ? 0 : (count - 1) / slice(layout) + 1;
}

/* Slice @turn of @all. */
static struct ddpi_chunk slice_of(const struct ddpi_layout *layout, struct ddpi_chunk all,
                                  size_t turn)
{
    size_t most = slice(layout), first = turn * most, left = all.count - first;
    return (struct ddpi_chunk){.first = all.first + first, .count = left < most ? left : most};
}

/* The elements of @send that are gathered in part @part. A slice lies within the part of one rank:
 * where these begin is each rank's own affair, and only their lengths are the same on all. */
static struct ddpi_chunk gathered_slice(const struct ddpi_layout *layout, size_t part)
{
    if (layout->parts == NULL)
        return slice_of(layout, chunk_of(layout, 0), part);
    for (uint32_t rank = 0; rank < layout->ring->nranks; rank++) {
        struct ddpi_chunk all = ddpi_parts_at(layout->parts, 0, rank);
        size_t slices = slices_of(layout, all.count);
        if (part < slices)
            return slice_of(layout, all, part);
        part -= slices;
    }
    return (struct ddpi_chunk){.count = 0};
}

size_t ddpi_layout_parts(const struct ddpi_layout *layout)
{
    size_t slices = 0;
    if (is_whole(layout))
        return 1;
    if (is_gathered(layout) && layout->parts != NULL)
        for (uint32_t rank = 0; rank < layout->ring->nranks; rank++)
            slices += slices_of(layout, ddpi_parts_at(layout->parts, 0, rank).count);
    else
        slices = slices_of(layout, longest(layout));
    return slices > 0 ? slices : 1;
}

size_t ddpi_layout_len(const struct ddpi_layout *layout, uint32_t chunk)
{
    return chunk_of(layout, chunk).count * layout->element_size;
}

/* Whether @chunk is a result for the caller of this rank. */
static bool is_result(const struct ddpi_layout *layout, uint32_t chunk)
{
    const struct ddpi_ring *ring = layout->ring;
    return ring->rank == (ring->kind == DDPI_RING_REDUCE ? ring->root : chunk);
}

struct ddpi_place ddpi_layout_place(const struct ddpi_layout *layout, size_t part, uint32_t chunk)
{
    struct ddpi_chunk all = chunk_of(layout, chunk);
    size_t size = layout->element_size, offset = all.first * size;
    bool gathers = layout->ring->kind == DDPI_RING_ALL_GATHER;
    if (all.count == 0)
        return (struct ddpi_place){.len = 0}; /* there may be no buffers */
    if (is_whole(layout))
        return (struct ddpi_place){.own = layout->send + (gathers ? 0 : offset),
                                   .held = layout->recv + offset,
                                   .len = all.count * size};
    if (!is_gathered(layout) && part * slice(layout) >= all.count) /* longer chunks have more */
        return (struct ddpi_place){.len = 0};
    struct ddpi_chunk now =
        is_gathered(layout) ? gathered_slice(layout, part) : slice_of(layout, all, part);
    struct ddpi_place place = {.own = layout->send + now.first * size,
                               .held = layout->scratch + chunk * slice(layout) * size,
                               .len = now.count * size};
    if (!gathers && is_result(layout, chunk))
        place.held = layout->recv + (now.first - all.first) * size;
    return place;
}

/* The elements of the result for the caller of this rank. */
static struct ddpi_chunk wanted(const struct ddpi_layout *layout)
{
    const struct ddpi_ring *ring = layout->ring;
    if (layout->call->operation == DDPI_REDUCE_SCATTER && layout->parts != NULL)
        return ddpi_parts_at(layout->parts, 0, ring->rank);
    if (layout->call->operation == DDPI_REDUCE_SCATTER)
        return ddpi_ring_chunk(layout->count, ring->nranks, ring->rank);
    bool nothing = layout->call->operation == DDPI_REDUCE && ring->rank != ring->root;
    return (struct ddpi_chunk){.first = 0, .count = nothing ? 0 : layout->count};
}

bool ddpi_layout_gathered(const struct ddpi_layout *layout, size_t part,
                          struct ddpi_gathered *ret_gathered)
{
    if (!is_gathered(layout))
        return false;
    struct ddpi_chunk want = wanted(layout);
    struct ddpi_chunk now = gathered_slice(layout, part);
    size_t size = layout->element_size, first = now.first, end = now.first + now.count;
    size_t from = first > want.first ? first : want.first;
    size_t to = end < want.first + want.count ? end : want.first + want.count;
    if (from >= to)
        return false;
    *ret_gathered = (struct ddpi_gathered){.in = layout->scratch + (from - first) * size,
                                           .stride = slice(layout) * size,
                                           .out = layout->recv + (from - want.first) * size,
                                           .count = to - from};
    return true;
}
