/*
 * ring_compare.h - for algorithms that pass their data over the edges of pairs: each rank also
 * tells the next one over the ring what it has called, so a rank that waits in another collective
 * hears of the mismatch.
 */
#ifndef DDPI_RING_COMPARE_H
#define DDPI_RING_COMPARE_H

#include "run.h"

struct ddpi_ring_compare {
    struct {
        uint8_t wire[DDPI_CALL_WIRE_SIZE];
        size_t done;
    } out, in;
};

void ddpi_ring_compare_begin(struct ddpi_ring_compare *compare, const struct ddpi_call *call);

/* Move what can be moved now; sets *@moved if something was. DDP_E_MISMATCH: the previous rank
 * called something else. */
ddp_status ddpi_ring_compare_advance(struct ddp_comm *comm, struct ddpi_ring_compare *compare,
                                     const struct ddpi_call *call, bool *moved);
bool ddpi_ring_compare_is_done(const struct ddpi_ring_compare *compare);

/* What it cannot go on without, at most DDPI_RING_EDGES. */
unsigned ddpi_ring_compare_needs(const struct ddp_comm *comm,
                                 const struct ddpi_ring_compare *compare, struct ddpi_need *needs);

#endif
