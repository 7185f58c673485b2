/*
 * units.h - divides a part of a task into units: pieces of chunks that travel on their own, so that
 * one is copied while another one is reduced and a third one is in transit. Pure arithmetic.
 *
 * A rank's in-units are the pieces that it receives, its out-units those that it sends, both in the
 * order of the schedule. In every schedule of ring.h a rank sends at step s + 1 the chunk that it
 * received at step s. So the out-units are first its own contribution, if the schedule begins with
 * one (ddpi_flow_own() units), then its in-units, in order. Hence a rank may send the first
 * ddpi_flow_own() units, and one more for each unit that has come in.
 */
#ifndef DDPI_UNITS_H
#define DDPI_UNITS_H

#include "chunk_layout.h"

struct ddpi_flow {
    const struct ddpi_layout *layout;
    size_t part;  /* of the layout */
    size_t piece; /* bytes of a unit, at most; a multiple of the element size, not 0 */
};

/* A position in the sequence of in-units or of out-units. */
struct ddpi_flow_cursor {
    uint64_t index; /* units before it */
    uint32_t step;
    size_t offset; /* bytes of the chunk of @step before it */
    bool outwards;
};

struct ddpi_unit {
    struct ddpi_ring_step step;
    uint32_t chunk;
    size_t offset; /* bytes of the chunk before it */
    size_t len;    /* bytes, not 0 */
    bool first;    /* of the schedule: the sender's own, not received from another rank */
};

/* The first in-unit or out-unit. */
struct ddpi_flow_cursor ddpi_flow_begin(const struct ddpi_flow *flow, bool outwards);

/* The unit at @cursor; false: the sequence has ended, and @ret_unit is unchanged. */
bool ddpi_flow_unit(const struct ddpi_flow *flow, const struct ddpi_flow_cursor *cursor,
                    struct ddpi_unit *ret_unit);

/* Move past the unit at @cursor, which must not be at the end. */
void ddpi_flow_advance(const struct ddpi_flow *flow, struct ddpi_flow_cursor *cursor);

/* The number of units in one direction, and their bytes. */
uint64_t ddpi_flow_units(const struct ddpi_flow *flow, bool outwards);
uint64_t ddpi_flow_bytes(const struct ddpi_flow *flow, bool outwards);

/* The number of out-units that are the rank's own. */
uint64_t ddpi_flow_own(const struct ddpi_flow *flow);

#endif
