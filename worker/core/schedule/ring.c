/*
 * ring.c - ring schedules. Pure: no buffers, no I/O.
 */
#include "ring.h"

/* (rank - back) mod nranks, for 0 <= back <= nranks. */
static uint32_t rank_minus(const struct ddpi_ring *ring, uint32_t back)
{
    return (uint32_t)(((uint64_t)ring->rank + ring->nranks - back) % ring->nranks);
}

/* Rank r begins by sending chunk r - @start. At each step it receives the chunk before the one that
 * it sends, and adds its own to it; after N - 1 steps it holds chunk r - @start + 1, finished. */
static struct ddpi_ring_step scatter_reduce_step(const struct ddpi_ring *ring, uint32_t step,
                                                 uint32_t start)
{
    return (struct ddpi_ring_step){.sends = true,
                                   .receives = true,
                                   .reduces = true,
                                   .finishes = step == ring->nranks - 2,
                                   .send_chunk = rank_minus(ring, start + step),
                                   .recv_chunk = rank_minus(ring, start + step + 1)};
}

/* A rank that starts with chunk @ahead + r forwards it; then it forwards what it received. */
static struct ddpi_ring_step all_gather_step(const struct ddpi_ring *ring, uint32_t step,
                                             uint32_t ahead)
{
    return (struct ddpi_ring_step){.sends = true,
                                   .receives = true,
                                   .send_chunk = (rank_minus(ring, step) + ahead) % ring->nranks,
                                   .recv_chunk =
                                       (rank_minus(ring, step + 1) + ahead) % ring->nranks};
}

/* The root sends at step 0. All others receive at step 0 and, except for the last one, send at
 * step 1. */
static struct ddpi_ring_step broadcast_step(const struct ddpi_ring *ring, uint32_t step)
{
    bool is_root = ring->rank == ring->root;
    bool is_last = ddpi_ring_next(ring->rank, ring->nranks) == ring->root;
    if (step == 0)
        return (struct ddpi_ring_step){.sends = is_root, .receives = !is_root};
    return (struct ddpi_ring_step){.sends = !is_root && !is_last};
}

/* The rank after the root sends at step 0. All others receive at step 0 and, except for the root,
 * send at step 1. */
static struct ddpi_ring_step reduce_step(const struct ddpi_ring *ring, uint32_t step)
{
    bool is_root = ring->rank == ring->root;
    bool is_first = ring->rank == ddpi_ring_next(ring->root, ring->nranks);
    if (step == 0)
        return (struct ddpi_ring_step){
            .sends = is_first, .receives = !is_first, .reduces = !is_first, .finishes = is_root};
    return (struct ddpi_ring_step){.sends = !is_first && !is_root};
}

uint32_t ddpi_ring_steps(const struct ddpi_ring *ring)
{
    if (ring->nranks < 2)
        return 0;
    switch (ring->kind) {
    case DDPI_RING_ALL_REDUCE:
        return 2 * (ring->nranks - 1);
    case DDPI_RING_ALL_GATHER:
    case DDPI_RING_REDUCE_SCATTER:
        return ring->nranks - 1;
    case DDPI_RING_BROADCAST:
    case DDPI_RING_REDUCE:
        return 2;
    }
    return 0;
}

uint32_t ddpi_ring_chunks(const struct ddpi_ring *ring)
{
    bool is_chain = ring->kind == DDPI_RING_BROADCAST || ring->kind == DDPI_RING_REDUCE;
    return is_chain ? 1 : ring->nranks;
}

struct ddpi_ring_step ddpi_ring_step(const struct ddpi_ring *ring, uint32_t step)
{
    switch (ring->kind) {
    case DDPI_RING_ALL_REDUCE:
        if (step < ring->nranks - 1)
            return scatter_reduce_step(ring, step, 0);
        return all_gather_step(ring, step - (ring->nranks - 1), 1);
    case DDPI_RING_ALL_GATHER:
        return all_gather_step(ring, step, 0);
    case DDPI_RING_REDUCE_SCATTER:
        return scatter_reduce_step(ring, step, 1);
    case DDPI_RING_BROADCAST:
        return broadcast_step(ring, step);
    case DDPI_RING_REDUCE:
        return reduce_step(ring, step);
    }
    return (struct ddpi_ring_step){0};
}

struct ddpi_chunk ddpi_ring_chunk(size_t count, uint32_t nchunks, uint32_t index)
{
    size_t base = count / nchunks;
    size_t longer = count % nchunks; /* this many chunks have one element more */
    return (struct ddpi_chunk){.first = index * base + (index < longer ? index : longer),
                               .count = base + (index < longer ? 1 : 0)};
}
