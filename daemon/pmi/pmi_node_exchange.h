/*
 * pmi_node_exchange.h - the exchanges of keys between the process managers of a job's nodes, and
 * the ranks that wait for them.
 */
#ifndef DAEMON_PMI_NODE_EXCHANGE_H
#define DAEMON_PMI_NODE_EXCHANGE_H

#include "pmi_node_state.h"

/* Send a line to the rank @local. */
void pmi_answer(struct pmi_node *node, uint32_t local, const char *format, ...) DDP_PRINTF(3, 4);

/* Answer a get of the rank @local; NULL: no such key. */
void pmi_answer_get(struct pmi_node *node, uint32_t local, const char *value);

/* Answer all ranks that have asked which ranks share a machine. */
void pmi_answer_mapping(struct pmi_node *node);

/* Add a line to the text of the next exchange; false: no room. */
bool pmi_node_exchange_put(struct pmi_node *node, const char *format, ...) DDP_PRINTF(2, 3);

/* The text of node @from in the current exchange. */
void pmi_node_exchange_text(struct pmi_node *node, uint32_t from, const char *text, size_t len);

/* The other nodes cannot be reached: end the connections of waiting ranks. */
void pmi_node_exchange_cut_off(struct pmi_node *node, const char *why);

/* Take every step that is possible now. */
void pmi_node_exchange_advance(struct pmi_node *node);

#endif
