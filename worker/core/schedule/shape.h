/*
 * shape.h - what each operation does with the buffers of its ranks: one row for each operation.
 * Pure.
 *
 * The elements of an operation are one part, a part for each rank, or one for each pair of ranks. A
 * part comes from a rank, or is reduced of those of all ranks, and goes to a rank or to all. All
 * else follows from that.
 */
#ifndef DDPI_SHAPE_H
#define DDPI_SHAPE_H

#include "call_header.h"
#include "ring.h"

#include <stdbool.h>

enum ddpi_parting { DDPI_NO_PARTS, DDPI_ONE_PART, DDPI_RANK_PARTS, DDPI_PAIR_PARTS };

/* NAMED: part r belongs to rank r: a scatter sends it there, an all_gather has it from there; a
 * part of a pair belongs to both. From ALL: it is reduced of those of all ranks. */
enum ddpi_end { DDPI_NO_END, DDPI_END_ROOT, DDPI_END_NAMED, DDPI_END_ALL };

/* What a rank has in a buffer. */
enum ddpi_extent { DDPI_EXTENT_NONE, DDPI_EXTENT_PART, DDPI_EXTENT_ALL };

enum ddpi_who { DDPI_NOBODY, DDPI_ROOT, DDPI_OTHERS, DDPI_EVERY };

struct ddpi_shape {
    enum ddpi_parting parts;
    enum ddpi_end from, to;
    enum ddpi_ring_kind ring;
    bool has_ring;               /* a ring schedule carries it out */
    bool message;                /* between two ranks, of which call.root is the other one */
    bool has_elements;           /* its callers pass buffers */
    bool reduces;                /* it has a reduction */
    bool rooted;                 /* it has a root */
    const char *in_place;        /* what must hold then; NULL: the buffers never overlap */
    enum ddpi_extent send, recv; /* of every rank, */
    enum ddpi_extent root_send, root_recv; /* but for the root */

    /* Which ranks send to others, and which take from others: another block for each receiver, a
     * block of each sender. A rank copies its own part itself. */
    enum ddpi_who sends, takes;
    bool sends_blocks;
    bool takes_of_each;
};

extern const struct ddpi_shape ddpi_shapes[DDPI_OPERATIONS];

static inline const struct ddpi_shape *ddpi_call_shape(const struct ddpi_call *call)
{
    return &ddpi_shapes[call->operation];
}

/* Whether @who includes @rank in @call. */
static inline bool ddpi_call_includes(const struct ddpi_call *call, enum ddpi_who who,
                                      uint32_t rank)
{
    bool is_root = rank == call->root;
    return who == DDPI_EVERY || (who == DDPI_ROOT && is_root) || (who == DDPI_OTHERS && !is_root);
}

#endif
