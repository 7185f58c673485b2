/*
 * verdict.h - what to say of a peer that is gone, and which of several to name.
 */
#ifndef DDPI_VERDICT_H
#define DDPI_VERDICT_H

#include "edges.h"

/* The fate of the peer of an edge as a sentence: "has died", and more. */
struct ddpi_verdict {
    ddp_status status;
    const char *words;
};

/* The verdict on the peer of @edge, whose connection has ended. Blocks for up to a second if the
 * peer is on another machine. */
struct ddpi_verdict ddpi_verdict_of(struct ddpi_edge *edge);

/* The edge whose peer to name when that of @edge is gone: another peer may have died and so been
 * the cause. Blocks for up to a second in all, if connections between machines have ended. */
struct ddpi_edge *ddpi_verdict_culprit(const struct ddpi_edges *edges, struct ddpi_edge *edge);

#endif
