/*
 * chunk_layout.h - addresses of the chunks of a task: this rank's contribution to each, and where
 * it keeps what it receives. Pure arithmetic; the engine moves the bytes (ring_engine.c).
 *
 * The caller's send buffer must not change, and a reduction whose result is not for every rank has
 * partial results that belong in no buffer of the caller. They are kept in scratch memory of a
 * fixed size; so such a task is run in parts, each over a slice of every chunk.
 */
#ifndef DDPI_CHUNK_LAYOUT_H
#define DDPI_CHUNK_LAYOUT_H

#include "call_header.h"
#include "parts.h"
#include "ring.h"

/* Small enough for a core's second-level cache. A task whose element for each rank does not fit is
 * refused (task.c). */
enum { DDPI_SCRATCH_SIZE = 512 * 1024 };

struct ddpi_layout {
    const struct ddpi_call *call;
    const struct ddpi_ring *ring;
    const uint8_t *send;
    uint8_t *recv;
    uint8_t *scratch;
    size_t scratch_size;            /* at least an element for each rank */
    size_t count;                   /* elements of the result, of all ranks together */
    const struct ddpi_parts *parts; /* of the ranks, which are the chunks; NULL: chunks are equal */
    size_t element_size;
    bool gathered; /* gather the contributions of all ranks in scratch: `direct` on the host */
};

struct ddpi_place {
    const uint8_t
        *own;      /* this rank's contribution; where chunks are gathered, to its own chunk only */
    uint8_t *held; /* where received bytes are kept, and forwarded from; may be @own */
    size_t len;    /* in bytes */
};

/* At least 1, even if there is nothing to move. */
size_t ddpi_layout_parts(const struct ddpi_layout *layout);

/* Chunk @chunk in part @part. */
struct ddpi_place ddpi_layout_place(const struct ddpi_layout *layout, size_t part, uint32_t chunk);

/* What `direct` has gathered in scratch after a part: reduce @count elements of each rank to @out;
 * the first rank's are at @in, the others' follow, each @stride bytes later. */
struct ddpi_gathered {
    const uint8_t *in;
    size_t stride;
    uint8_t *out;
    size_t count;
};

/* false: nothing for this rank. */
bool ddpi_layout_gathered(const struct ddpi_layout *layout, size_t part,
                          struct ddpi_gathered *ret_gathered);

/* Bytes of chunk @chunk in all parts. */
size_t ddpi_layout_len(const struct ddpi_layout *layout, uint32_t chunk);

#endif
