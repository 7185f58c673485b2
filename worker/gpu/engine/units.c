/*
 * units.c - divides a part of a task into units. Pure.
 */
#include "units.h"

static uint32_t steps_of(const struct ddpi_flow *flow)
{
    return ddpi_ring_steps(flow->layout->ring);
}

/* How many bytes the rank moves at @step, and of which chunk. */
static size_t moved_at(const struct ddpi_flow *flow, uint32_t step, bool outwards,
                       uint32_t *ret_chunk)
{
    struct ddpi_ring_step now = ddpi_ring_step(flow->layout->ring, step);
    *ret_chunk = outwards ? now.send_chunk : now.recv_chunk;
    bool moves = outwards ? now.sends : now.receives;
    return moves ? ddpi_layout_place(flow->layout, flow->part, *ret_chunk).len : 0;
}

/* Move to the first step, from the current one on, at which something moves. */
static void units_settle(const struct ddpi_flow *flow, struct ddpi_flow_cursor *cursor)
{
    uint32_t chunk;
    while (cursor->step < steps_of(flow) &&
           moved_at(flow, cursor->step, cursor->outwards, &chunk) == 0)
        cursor->step++;
}

struct ddpi_flow_cursor ddpi_flow_begin(const struct ddpi_flow *flow, bool outwards)
{
    struct ddpi_flow_cursor cursor = {.outwards = outwards};
    units_settle(flow, &cursor);
    return cursor;
}

bool ddpi_flow_unit(const struct ddpi_flow *flow, const struct ddpi_flow_cursor *cursor,
                    struct ddpi_unit *ret_unit)
{
    if (cursor->step >= steps_of(flow))
        return false;
    uint32_t chunk;
    size_t left = moved_at(flow, cursor->step, cursor->outwards, &chunk) - cursor->offset;
    *ret_unit = (struct ddpi_unit){.step = ddpi_ring_step(flow->layout->ring, cursor->step),
                                   .chunk = chunk,
                                   .offset = cursor->offset,
                                   .len = left < flow->piece ? left : flow->piece,
                                   .first = cursor->step == 0};
    return true;
}

void ddpi_flow_advance(const struct ddpi_flow *flow, struct ddpi_flow_cursor *cursor)
{
    uint32_t chunk;
    size_t left = moved_at(flow, cursor->step, cursor->outwards, &chunk) - cursor->offset;
    cursor->index++;
    if (left > flow->piece) {
        cursor->offset += flow->piece;
        return;
    }
    cursor->offset = 0;
    cursor->step++;
    units_settle(flow, cursor);
}

static uint64_t units_at(const struct ddpi_flow *flow, uint32_t step, bool outwards)
{
    uint32_t chunk;
    size_t len = moved_at(flow, step, outwards, &chunk);
    return len / flow->piece + (len % flow->piece != 0);
}

uint64_t ddpi_flow_units(const struct ddpi_flow *flow, bool outwards)
{
    uint64_t units = 0;
    for (uint32_t step = 0; step < steps_of(flow); step++)
        units += units_at(flow, step, outwards);
    return units;
}

uint64_t ddpi_flow_bytes(const struct ddpi_flow *flow, bool outwards)
{
    uint64_t bytes = 0;
    uint32_t chunk;
    for (uint32_t step = 0; step < steps_of(flow); step++)
        bytes += moved_at(flow, step, outwards, &chunk);
    return bytes;
}

uint64_t ddpi_flow_own(const struct ddpi_flow *flow)
{
    return steps_of(flow) == 0 ? 0 : units_at(flow, 0, true);
}
