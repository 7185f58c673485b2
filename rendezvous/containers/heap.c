/*
 * heap.c - the binary heap. Knows no clock: its users say what `at` means.
 */
#include "heap.h"

#include "mem.h"

enum { FIRST_SIZE = 16 };

void ddpi_heap_finish(struct ddpi_heap *heap)
{
    ddpi_free(heap->nodes);
    *heap = (struct ddpi_heap){0};
}

static void place_node(struct ddpi_heap *heap, size_t index, struct ddpi_heap_node *node)
{
    heap->nodes[index] = node;
    node->place = index + 1;
}

static void sift_up(struct ddpi_heap *heap, size_t index, struct ddpi_heap_node *node)
{
    while (index > 0 && heap->nodes[(index - 1) / 2]->at > node->at) {
        place_node(heap, index, heap->nodes[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    place_node(heap, index, node);
}

static void sift_down(struct ddpi_heap *heap, size_t index, struct ddpi_heap_node *node)
{
    for (;;) {
        size_t child = 2 * index + 1;
        if (child + 1 < heap->count && heap->nodes[child + 1]->at < heap->nodes[child]->at)
            child++;
        if (child >= heap->count || heap->nodes[child]->at >= node->at)
            break;
        place_node(heap, index, heap->nodes[child]);
        index = child;
    }
    place_node(heap, index, node);
}

bool ddpi_heap_insert(struct ddpi_heap *heap, struct ddpi_heap_node *node, uint64_t at)
{
    if (heap->count == heap->size) {
        size_t size = heap->size > 0 ? heap->size * 2 : FIRST_SIZE;
        struct ddpi_heap_node **nodes = ddpi_realloc(heap->nodes, size, sizeof(*nodes));
        if (nodes == NULL)
            return false;
        heap->nodes = nodes;
        heap->size = size;
    }
    node->at = at;
    sift_up(heap, heap->count++, node);
    return true;
}

/* Leaves room for as many nodes again, so that a node that was taken out can be put back. */
static void shrink(struct ddpi_heap *heap)
{
    if (heap->size <= FIRST_SIZE || heap->count >= heap->size / 8)
        return;
    struct ddpi_heap_node **nodes = ddpi_realloc(heap->nodes, heap->size / 2, sizeof(*nodes));
    if (nodes == NULL)
        return;
    heap->nodes = nodes;
    heap->size /= 2;
}

void ddpi_heap_remove(struct ddpi_heap *heap, struct ddpi_heap_node *node)
{
    if (node->place == 0)
        return;
    size_t index = node->place - 1;
    node->place = 0;
    struct ddpi_heap_node *last = heap->nodes[--heap->count];
    shrink(heap);
    if (last == node)
        return;
    if (last->at < node->at)
        sift_up(heap, index, last);
    else
        sift_down(heap, index, last);
}
