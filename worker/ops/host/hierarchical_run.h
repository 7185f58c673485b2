/*
 * hierarchical_run.h - all_reduce between nodes (hierarchy.h): ranks of a node meet in the memory
 * that they share, and only shares pass between nodes, over the edges of pairs. Fewer bytes cross
 * between nodes than in the ring, and none between the ranks of a node.
 */
#ifndef DDPI_HIERARCHICAL_RUN_H
#define DDPI_HIERARCHICAL_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_hierarchical_algorithm;

#endif
