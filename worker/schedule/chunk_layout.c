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

static struct ddpi_chunk chunk_of(const struct ddpi_layout *layout, uint32_t chunk)
{
    if (is_gathered(layout))
        return (struct ddpi_chunk){.first = 0, .count = layout->count};
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

size_t ddpi_layout_parts(const struct ddpi_layout *layout)
{
    size_t count = longest(layout);
    if (is_whole(layout) || count == 0)
        return 1;
    return (count - 1) / slice(layout) + 1;
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
    size_t most = slice(layout), first = part * most;
    if (first >= all.count) /* longer chunks have more parts */
        return (struct ddpi_place){.len = 0};
    size_t left = all.count - first;
    struct ddpi_place place = {.own = layout->send + offset + first * size,
                               .held = layout->scratch + chunk * most * size,
                               .len = (left < most ? left : most) * size};
    if (!gathers && is_result(layout, chunk))
        place.held = layout->recv + first * size;
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
    size_t most = slice(layout), size = layout->element_size;
    size_t first = part * most, end = layout->count - first < most ? layout->count : first + most;
    size_t from = first > want.first ? first : want.first;
    size_t to = end < want.first + want.count ? end : want.first + want.count;
    if (from >= to)
        return false;
    *ret_gathered = (struct ddpi_gathered){.in = layout->scratch + (from - first) * size,
                                           .stride = most * size,
                                           .out = layout->recv + (from - want.first) * size,
                                           .count = to - from};
    return true;
}
