/*
 * pmi_node.h - the process manager's side of PMI-1, the text protocol through which programs of
 * MPICH and its derivatives find each other: one node in one generation. Pure: lines of ranks and
 * texts of other nodes go in, replies and texts for other nodes come out.
 *
 * A rank puts keys, waits in a barrier for all ranks, and gets the keys of others. So keys travel
 * with barriers: when all ranks of this node wait, the node sends their keys to all other nodes,
 * and its ranks continue when it has the texts of all nodes. Then it can answer every get.
 *
 *     SILENT --init--> OPEN --barrier_in--> WAITING --all nodes are there--> OPEN
 *                        +--finalize--> FINALIZED
 *     any --its socket or process has ended, or it violates the protocol--> GONE
 *
 * A rank that is GONE before finalize reaches no barrier; the others are told, as they would wait
 * forever. After finalize a rank may close its connection, and MPICH does. A SILENT rank is
 * probably no MPI program.
 *
 * The protocol is that of MPICH 4.0 (src/pmi/simple/simple_pmi.c).
 */
#ifndef DAEMON_PMI_NODE_H
#define DAEMON_PMI_NODE_H

#include "pmi_node_state.h"

/* NULL: no memory. */
struct pmi_node *pmi_node_create(const struct pmi_place *place, const struct pmi_node_hooks *hooks);
void pmi_node_destroy(struct pmi_node *node);

/* A line of a rank, without its newline. */
void pmi_node_line(struct pmi_node *node, uint32_t local_rank, const char *line, size_t len);

/* A rank's connection has ended, or its process has exited with 0. */
void pmi_node_gone(struct pmi_node *node, uint32_t local_rank);

unsigned pmi_node_state(const struct pmi_node *node, uint32_t local_rank);

#endif
