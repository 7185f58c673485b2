/*
 * hierarchy.h - the schedule of an all-reduce between nodes (nodes.h): which rank reduces, sends
 * and receives what. Pure arithmetic.
 *
 * The elements are taken in slices. Each slice has a part for each rank of the smallest node, and
 * each part a share for each node:
 *
 *   reduce   the ranks of a node reduce their elements; rank i of the node gets part i
 *   scatter  the ranks i of all nodes send each other their shares of part i: that of node n gets
 *            share n of all nodes, and reduces them in the order of nodes
 *   gather   it sends the result to the ranks i of the other nodes
 *   spread   the ranks of a node take the parts of each other
 *
 * A rank beyond those of the smallest node has no part: it takes part inside its node only. Each
 * share is reduced by one rank, so all ranks get the same bits.
 */
#ifndef DDPI_HIERARCHY_H
#define DDPI_HIERARCHY_H

#include "nodes.h"
#include "ring.h"

struct ddpi_hierarchy {
    const struct ddpi_nodes *nodes;
    uint32_t index; /* of this rank in its node */
    size_t count;   /* elements in all */
    size_t width;   /* of a slice; the last one has fewer */
};

/* For @rank. The shares of a part have @room elements together, at least one for each node. */
struct ddpi_hierarchy ddpi_hierarchy_of(const struct ddpi_nodes *nodes, uint32_t rank, size_t count,
                                        size_t room);

/* At least 1, even without elements. */
size_t ddpi_hierarchy_slices(const struct ddpi_hierarchy *hierarchy);
struct ddpi_chunk ddpi_hierarchy_slice(const struct ddpi_hierarchy *hierarchy, size_t index);

/* The part of rank @index of each node, in @slice; it may be empty. */
struct ddpi_chunk ddpi_hierarchy_part(const struct ddpi_hierarchy *hierarchy,
                                      const struct ddpi_chunk *slice, uint32_t index);

/* Whether this rank has a part. */
bool ddpi_hierarchy_crosses(const struct ddpi_hierarchy *hierarchy);

/* The share of node @node in @part. */
struct ddpi_chunk ddpi_hierarchy_share(const struct ddpi_hierarchy *hierarchy,
                                       const struct ddpi_chunk *part, uint32_t node);

/* The rank of node @node that has the same part as this one. */
uint32_t ddpi_hierarchy_peer(const struct ddpi_hierarchy *hierarchy, uint32_t node);

#endif
