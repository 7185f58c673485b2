/*
 * heap.h - intrusive binary heap of points in time: the earliest is at the top, and any node can be
 * taken out. It owns its array, never its nodes.
 */
#ifndef DDPI_HEAP_H
#define DDPI_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddpi_heap_node {
    uint64_t at;
    size_t place; /* index + 1; 0: in no heap */
};

struct ddpi_heap {
    struct ddpi_heap_node **nodes;
    size_t count;
    size_t size; /* allocated */
};

/* A zeroed heap is empty. */
void ddpi_heap_finish(struct ddpi_heap *heap);

/* false, with nothing changed, when out of memory. */
bool ddpi_heap_insert(struct ddpi_heap *heap, struct ddpi_heap_node *node, uint64_t at);

/* Does nothing if @node is in no heap. */
void ddpi_heap_remove(struct ddpi_heap *heap, struct ddpi_heap_node *node);

/* NULL when empty. */
static inline struct ddpi_heap_node *ddpi_heap_top(const struct ddpi_heap *heap)
{
    return heap->count > 0 ? heap->nodes[0] : NULL;
}

#endif
