/*
 * chunk_layout.h - where the chunks of a task lie: what this rank has of each, and where it holds
 * what came in. Pure arithmetic on addresses; the engine in engine.c moves the bytes.
 *
 * A caller's send buffer must not change, and a reduction that does not end at every rank has
 * partial results that belong nowhere. They go to scratch memory of a fixed size; so such a task is
 * run in parts, each over a slice of every chunk.
 */
#ifndef DDPI_CHUNK_LAYOUT_H
#define DDPI_CHUNK_LAYOUT_H

#include "call_header.h"
#include "ring.h"

/* Enough for an element of the largest type of each rank of the largest world, and little enough
 * to stay in a core's second-level cache. */
enum { DDPI_SCRATCH_SIZE = 512 * 1024 };

struct ddpi_layout {
    const struct ddpi_call *call;
    const struct ddpi_ring *ring;
    const uint8_t *send;
    uint8_t *recv;
    uint8_t *scratch;
    size_t scratch_size; /* at least an element of the largest type for each rank */
    size_t count;        /* elements that the result has for all ranks together */
    size_t element_size;
    bool gathered; /* contributions of all ranks are gathered in scratch: the host\'s `direct` */
};

struct ddpi_place {
    const uint8_t *own; /* this rank's contribution; where chunks are gathered, only to its own */
    uint8_t *held;      /* where what comes in is put, and passed on from; may be @own */
    size_t len;         /* in bytes */
};

/* At least 1, also when there is nothing to move. */
size_t ddpi_layout_parts(const struct ddpi_layout *layout);

/* Chunk @chunk in part @part. */
struct ddpi_place ddpi_layout_place(const struct ddpi_layout *layout, size_t part, uint32_t chunk);

/* What `direct` has in scratch after a part: of it @count elements of each rank, the first rank's
 * at
 * @in and the others' @stride bytes apart, reduce to what belongs at @out. */
struct ddpi_gathered {
    const uint8_t *in;
    size_t stride;
    uint8_t *out;
    size_t count;
};

/* false: nothing that this rank wants. */
bool ddpi_layout_gathered(const struct ddpi_layout *layout, size_t part,
                          struct ddpi_gathered *ret_gathered);

/* Bytes of chunk @chunk in all parts. */
size_t ddpi_layout_len(const struct ddpi_layout *layout, uint32_t chunk);

#endif
