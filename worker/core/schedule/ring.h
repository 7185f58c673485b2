/*
 * ring.h - ring schedules: which chunk a rank sends to the next rank and receives from the previous
 * one at each step. Pure arithmetic.
 *
 * In every schedule the chunk that a rank sends at step s > 0 is the one that it received at step
 * s - 1. So bytes may be forwarded as soon as they arrive, and an engine needs no barrier between
 * steps.
 */
#ifndef DDPI_RING_H
#define DDPI_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ddpi_ring_kind {
    DDPI_RING_ALL_REDUCE,     /* scatter-reduce, then all-gather: 2(N-1) steps over N chunks */
    DDPI_RING_ALL_GATHER,     /* rank r starts with chunk r: N-1 steps over N chunks */
    DDPI_RING_REDUCE_SCATTER, /* rank r ends with chunk r, reduced: N-1 steps over N chunks */
    DDPI_RING_BROADCAST,      /* from the root onwards: at most 2 steps over one chunk */
    DDPI_RING_REDUCE, /* from the rank after the root round to it: at most 2 steps, one chunk */
};

struct ddpi_ring {
    enum ddpi_ring_kind kind;
    uint32_t rank;
    uint32_t nranks;
    uint32_t root; /* broadcast and reduce only */
};

struct ddpi_ring_step {
    bool sends;
    bool receives;
    bool reduces;  /* reduce the received chunk with this rank's own; otherwise store it */
    bool finishes; /* this reduction is the last one of its chunk */
    uint32_t send_chunk;
    uint32_t recv_chunk;
};

uint32_t ddpi_ring_steps(const struct ddpi_ring *ring);
uint32_t ddpi_ring_chunks(const struct ddpi_ring *ring);

/* @step < ddpi_ring_steps(). */
struct ddpi_ring_step ddpi_ring_step(const struct ddpi_ring *ring, uint32_t step);

static inline uint32_t ddpi_ring_next(uint32_t rank, uint32_t nranks)
{
    return rank + 1 == nranks ? 0 : rank + 1;
}

static inline uint32_t ddpi_ring_prev(uint32_t rank, uint32_t nranks)
{
    return rank == 0 ? nranks - 1 : rank - 1;
}

/* Elements [first, first + count) of the whole. */
struct ddpi_chunk {
    size_t first;
    size_t count;
};

/* Chunk @index of @count elements cut into @nchunks: sizes differ by at most one element, larger
 * ones first; with more chunks than elements the last ones are empty. */
struct ddpi_chunk ddpi_ring_chunk(size_t count, uint32_t nchunks, uint32_t index);

#endif
