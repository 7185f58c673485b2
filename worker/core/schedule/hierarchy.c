/*
 * hierarchy.c - the schedule of an all-reduce between nodes. Pure: no buffers, no I/O.
 */
#include "hierarchy.h"

struct ddpi_hierarchy ddpi_hierarchy_of(const struct ddpi_nodes *nodes, uint32_t rank, size_t count,
                                        size_t room)
{
    size_t part = room / nodes->count * nodes->count; /* so shares that are one longer fit, too */
    return (struct ddpi_hierarchy){.nodes = nodes,
                                   .index = rank - ddpi_node_first(nodes),
                                   .count = count,
                                   .width = part * nodes->width};
}

size_t ddpi_hierarchy_slices(const struct ddpi_hierarchy *hierarchy)
{
    return hierarchy->count == 0 ? 1 : (hierarchy->count - 1) / hierarchy->width + 1;
}

struct ddpi_chunk ddpi_hierarchy_slice(const struct ddpi_hierarchy *hierarchy, size_t index)
{
    size_t first = index * hierarchy->width, left = hierarchy->count - first;
    return (struct ddpi_chunk){.first = first,
                               .count = left < hierarchy->width ? left : hierarchy->width};
}

struct ddpi_chunk ddpi_hierarchy_part(const struct ddpi_hierarchy *hierarchy,
                                      const struct ddpi_chunk *slice, uint32_t index)
{
    if (index >= hierarchy->nodes->width)
        return (struct ddpi_chunk){.first = slice->first + slice->count};
    struct ddpi_chunk part = ddpi_ring_chunk(slice->count, hierarchy->nodes->width, index);
    part.first += slice->first;
    return part;
}

bool ddpi_hierarchy_crosses(const struct ddpi_hierarchy *hierarchy)
{
    return hierarchy->index < hierarchy->nodes->width;
}

struct ddpi_chunk ddpi_hierarchy_share(const struct ddpi_hierarchy *hierarchy,
                                       const struct ddpi_chunk *part, uint32_t node)
{
    struct ddpi_chunk share = ddpi_ring_chunk(part->count, hierarchy->nodes->count, node);
    share.first += part->first;
    return share;
}

uint32_t ddpi_hierarchy_peer(const struct ddpi_hierarchy *hierarchy, uint32_t node)
{
    return hierarchy->nodes->firsts[node] + hierarchy->index;
}
