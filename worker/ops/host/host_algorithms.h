/*
 * host_algorithms.h - the algorithms on host memory of which nothing else is to be known.
 */
#ifndef DDPI_HOST_ALGORITHMS_H
#define DDPI_HOST_ALGORITHMS_H

#include "run.h"

/* Gather, scatter and all_to_all between ranks that do not share memory: each pair of ranks passes
 * its part over the edge between them. */
extern const struct ddpi_algorithm ddpi_parts_algorithm;

/* All_reduce by recursive doubling (doubling.h) over the edges of pairs: log2 N hops where the ring
 * has 2(N - 1), and all bytes in each. For small messages between ranks that share no memory. */
extern const struct ddpi_algorithm ddpi_doubling_algorithm;

/* All_reduce between nodes (hierarchy.h): ranks of a node meet in the memory that they share, and
 * only shares pass between nodes, over the edges of pairs. Fewer bytes cross between nodes than in
 * the ring, and none between the ranks of a node. */
extern const struct ddpi_algorithm ddpi_hierarchical_algorithm;

/* ddp_monitored_barrier(): over the edges of pairs, and where ranks share memory. */
extern const struct ddpi_algorithm ddpi_monitored_algorithm, ddpi_monitored_meeting;

#endif
