/*
 * store_trouble.h - what a person reads when the store of a job cannot be used: whose fault it most
 * likely is, and what to do.
 */
#ifndef CMD_STORE_TROUBLE_H
#define CMD_STORE_TROUBLE_H

#include "store_host.h"

enum { STORE_TROUBLE_TEXT = 8192 };

/* The store refuses this node with @status, because of @why. */
void store_trouble_refused(const struct multi_node_config *config, ddp_status status,
                           const char *why, char text[STORE_TROUBLE_TEXT]);

/* There is no connection, because of @why. @patience_ms: how long this node waits for the first
 * one; 0: it had one. */
void store_trouble_lost(const struct multi_node_config *config, uint64_t patience_ms,
                        const char *why, char text[STORE_TROUBLE_TEXT]);

#endif
