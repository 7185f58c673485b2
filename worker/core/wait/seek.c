/*
 * seek.c - see wait.h. Owns nothing.
 */
#include "wait.h"

#include "chunk_layout.h"
#include "error.h"
#include "mem.h"
#include "ring.h"

/* Accepting or connecting has failed. */
static ddp_status fail_meeting(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               ddp_status status, struct ddp_error *cause)
{
    char call[DDPI_CALL_TEXT];
    ddpi_error_advise_descriptors(cause, status);
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(comm, NULL, status, "%s: rank %u: %s", call, comm->rank, cause->msg);
}

ddp_status ddpi_seek_let_in(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    struct ddp_error cause = {0};
    ddp_status status = ddpi_edges_let_in(&comm->edges, &cause);
    return status == DDP_OK ? DDP_OK : fail_meeting(comm, wait, status, &cause);
}

/* Begin to connect to @peer, unless an attempt is in progress. */
static ddp_status ask_for_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                               enum ddpi_link link)
{
    struct ddpi_meeting *meeting = &comm->edges.meeting;
    struct ddp_error cause;
    if (meeting->attempt.stage != DDPI_ATTEMPT_NONE)
        return DDP_OK;
    ddp_status status = ddpi_meeting_ask(meeting, peer, link, &cause);
    return status == DDP_OK ? ddpi_seek_let_in(comm, wait)
                            : fail_meeting(comm, wait, status, &cause);
}

ddp_status ddpi_seek_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge)
{
    ddp_status status = DDP_OK;
    *ret_edge = ddpi_edges_peer(&comm->edges, peer);
    if (*ret_edge != NULL)
        return DDP_OK;
    status = ddpi_seek_let_in(comm, wait);
    *ret_edge = ddpi_edges_peer(&comm->edges, peer);
    if (status != DDP_OK || *ret_edge != NULL)
        return status;
    status = ask_for_edge(comm, wait, peer, DDPI_LINK_PEER);
    *ret_edge = ddpi_edges_peer(&comm->edges, peer);
    return status;
}

static ddp_status get_scratch(struct ddp_comm *comm)
{
    if (comm->scratch == NULL)
        comm->scratch = ddpi_calloc(DDPI_SCRATCH_SIZE, 1);
    return comm->scratch != NULL
               ? DDP_OK
               : ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory for %d bytes",
                                comm->rank, DDPI_SCRATCH_SIZE);
}

ddp_status ddpi_seek_ring(struct ddp_comm *comm, const struct ddpi_wait *wait, bool *ret_stands)
{
    struct ddpi_edges *edges = &comm->edges;
    uint32_t next = ddpi_ring_next(comm->rank, comm->world_size);
    uint32_t prev = ddpi_ring_prev(comm->rank, comm->world_size);
    ddp_status status = comm->scratch != NULL ? DDP_OK : get_scratch(comm);
    if (status == DDP_OK && !ddpi_edges_have_ring(edges))
        status = ddpi_seek_let_in(comm, wait);
    if (status == DDP_OK && edges->ring[DDPI_NEXT] == NULL)
        status = ask_for_edge(comm, wait, next, DDPI_LINK_RING);
    if (status == DDP_OK && edges->ring[DDPI_PREV] == NULL)
        status = ask_for_edge(comm, wait, prev, DDPI_LINK_BACK);
    *ret_stands = ddpi_edges_have_ring(edges);
    return status;
}

struct ddpi_edge *ddpi_sought_edge(const struct ddp_comm *comm)
{
    return (struct ddpi_edge *)(uintptr_t)&comm->edges.meeting.attempt.edge;
}
