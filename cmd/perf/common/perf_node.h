/*
 * perf_node.h - ranks of one machine that pretend to be on several nodes.
 */
#ifndef CMD_PERF_NODE_H
#define CMD_PERF_NODE_H

#include <ddprun/status.h>
#include <stdint.h>

/* Divide the ranks that ddprun has started evenly among @nodes nodes: the library asks the
 * environment, which this changes, which ranks are on one node. 0: leave it. */
DDP_MUST_CHECK ddp_status perf_pretend_node(int64_t nodes, struct ddp_error *err);

#endif
