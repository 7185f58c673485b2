/*
 * verdict.c - what to say of a peer that is gone, and which of several to name. Owns nothing.
 */
#include "verdict.h"

#include "mem.h"

static enum ddpi_fate fate_of(struct ddpi_edge *edge)
{
    struct ddpi_probe probe = {.address = &edge->listener};
    if (edge->fate == DDPI_FATE_UNASKED && edge->control.local) {
        edge->fate = ddpi_process_fate(&edge->process);
    } else if (edge->fate == DDPI_FATE_UNASKED) {
        ddpi_probe_all(&probe, 1);
        edge->fate = probe.fate;
    }
    return edge->fate;
}

/* The peer is on another machine, where asking takes up to a second. */
static bool must_probe(const struct ddpi_edge *edge, const struct ddpi_edge *needed)
{
    return (edge->gone_ms != 0 || edge == needed) && !edge->left && !edge->control.local &&
           edge->fate == DDPI_FATE_UNASKED;
}

/* Ask about @needed, which cannot go on, and about all peers that are gone, at the same time. */
static void probe_listeners(const struct ddpi_edges *edges, const struct ddpi_edge *needed)
{
    uint32_t places = ddpi_edges_places(edges);
    struct ddpi_probe *probes = ddpi_calloc(places, sizeof *probes);
    size_t count = 0, asked = 0;
    for (uint32_t i = 0; i < places && probes != NULL; i++) {
        const struct ddpi_edge *edge = ddpi_edges_at(edges, i);
        if (edge != NULL && must_probe(edge, needed))
            probes[count++].address = &edge->listener;
    }
    if (count > 0)
        ddpi_probe_all(probes, count);
    for (uint32_t i = 0; i < places; i++) {
        struct ddpi_edge *edge = ddpi_edges_at(edges, i);
        if (edge != NULL && must_probe(edge, needed))
            edge->fate = probes != NULL ? probes[asked++].fate : DDPI_FATE_UNKNOWN;
    }
    ddpi_free(probes);
}

/* Whether the peer has died, not left or become unreachable. */
static bool has_died(struct ddpi_edge *edge)
{
    return edge->gone_ms != 0 && !edge->left && fate_of(edge) == DDPI_FATE_DEAD;
}

/* The edge to name when the peer of @edge is gone. */
struct ddpi_edge *ddpi_verdict_culprit(const struct ddpi_edges *edges, struct ddpi_edge *edge)
{
    struct ddpi_edge *first = NULL;
    probe_listeners(edges, edge);
    if (has_died(edge))
        return edge;
    for (uint32_t i = 0; i < ddpi_edges_places(edges); i++) {
        struct ddpi_edge *other = ddpi_edges_at(edges, i);
        if (other != NULL && has_died(other) && (first == NULL || other->gone_ms < first->gone_ms))
            first = other;
    }
    return first != NULL ? first : edge;
}

struct ddpi_verdict ddpi_verdict_of(struct ddpi_edge *edge)
{
    static const struct ddpi_verdict verdicts[] = {
        [DDPI_FATE_UNKNOWN] = {DDP_E_PEER_DEAD,
                               "is gone: it has died, or has closed its connections"},
        [DDPI_FATE_DEAD] = {DDP_E_PEER_DEAD, "has died"},
        [DDPI_FATE_SILENT] = {DDP_E_PEER_DEAD, "is gone: its machine is down or unreachable"},
    };
    enum ddpi_fate fate;
    if (edge->left)
        return (struct ddpi_verdict){DDP_E_PEER_DEAD, "has left the communicator"};
    if (edge->control.fd < 0) /* this rank could not connect to it */
        return (struct ddpi_verdict){DDP_E_PEER_DEAD, edge->broken};
    fate = fate_of(edge);
    if (fate != DDPI_FATE_ALIVE)
        return verdicts[fate];
    if (edge->gone_ms == 0)
        return (struct ddpi_verdict){DDP_E_CLOSED, edge->broken};
    return (struct ddpi_verdict){
        DDP_E_CLOSED, edge->control.local
                          ? "lives, but has closed its connection: it runs another program now "
                            "(exec), or has closed descriptors that are not its own"
                          : "lives, but its connection was closed or reset: see whether it runs "
                            "another program now (exec) or has closed descriptors that are not its "
                            "own, and what cuts connections on the network"};
}
