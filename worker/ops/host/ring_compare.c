/*
 * ring_compare.c - headers of calls round the ring. Owns nothing.
 */
#include "ring_compare.h"

void ddpi_ring_compare_begin(struct ddpi_ring_compare *compare, const struct ddpi_call *call)
{
    *compare = (struct ddpi_ring_compare){0};
    ddpi_call_encode(call, compare->out.wire);
}

ddp_status ddpi_ring_compare_advance(struct ddp_comm *comm, struct ddpi_ring_compare *compare,
                                     const struct ddpi_call *call, bool *moved)
{
    struct ddpi_edge *next = comm->edges.ring[DDPI_NEXT], *prev = comm->edges.ring[DDPI_PREV];
    if (compare->out.done < DDPI_CALL_WIRE_SIZE) {
        size_t sent = next->ops->send(next, compare->out.wire + compare->out.done,
                                      DDPI_CALL_WIRE_SIZE - compare->out.done);
        compare->out.done += sent;
        *moved |= sent > 0;
    }
    if (compare->in.done == DDPI_CALL_WIRE_SIZE)
        return DDP_OK;
    size_t got = prev->ops->recv(prev, compare->in.wire + compare->in.done,
                                 DDPI_CALL_WIRE_SIZE - compare->in.done);
    compare->in.done += got;
    *moved |= got > 0;
    if (compare->in.done < DDPI_CALL_WIRE_SIZE)
        return DDP_OK;
    return ddpi_comm_check_peer_call(comm, prev, compare->in.wire, call, call);
}

bool ddpi_ring_compare_is_done(const struct ddpi_ring_compare *compare)
{
    return compare->out.done == DDPI_CALL_WIRE_SIZE && compare->in.done == DDPI_CALL_WIRE_SIZE;
}

unsigned ddpi_ring_compare_needs(const struct ddp_comm *comm,
                                 const struct ddpi_ring_compare *compare, struct ddpi_need *needs)
{
    unsigned count = 0;
    if (compare->out.done < DDPI_CALL_WIRE_SIZE)
        needs[count++] = (struct ddpi_need){.edge = comm->edges.ring[DDPI_NEXT], .send = true};
    if (compare->in.done < DDPI_CALL_WIRE_SIZE)
        needs[count++] = (struct ddpi_need){.edge = comm->edges.ring[DDPI_PREV], .recv_bytes = 1};
    return count;
}
