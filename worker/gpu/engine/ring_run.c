/*
 * ring_run.c - the ring of all ranks: which edges read their neighbour's memory in the current
 * operation, and the descriptors that their readers lack. pipeline.c moves the data.
 */
#include "pass_descriptors.h"

#include "ring.h"
#include "steps.h"

#include <string.h>

bool ddpi_ring_edge_reads(const struct ddpi_device *device, uint32_t reader)
{
    uint32_t ranks = device->comm->world_size;
    const struct ddpi_offer *offers = &device->offers[2 * ddpi_ring_prev(reader, ranks)];
    bool possible = device->ways.reads[reader] && device->opens[reader] != 0;
    for (unsigned i = 0; i < 2 && possible; i++)
        possible = ddpi_offer_suits(&offers[i], &device->offers[2 * reader]);
    return possible;
}

/* Units have the same size on all ranks. Small ones if some go through the host, so that copies and
 * network overlap; otherwise large ones, as each costs a launch and a token. */
static size_t piece_for(const struct ddpi_device *device)
{
    for (uint32_t rank = 0; rank < device->comm->world_size; rank++)
        if (!ddpi_ring_edge_reads(device, rank))
            return DDPI_STAGED_PIECE;
    return DDPI_READ_PIECE;
}

/* Of an all-reduce each rank has checked the chunk that it has finished. */
static ddp_status share_check(struct ddpi_device *device, struct ddpi_task *task)
{
    uint32_t ranks = device->comm->world_size;
    uint8_t *failed = device->opens; /* which edges are open is decided by now */
    failed[device->comm->rank] = task->found_non_finite = ddpi_finite_failed(device);
    if (task->call.operation != DDPI_ALL_REDUCE)
        return DDP_OK;
    ddp_status status = ddpi_device_gather(device, task, failed, 1);
    if (status == DDP_OK)
        task->found_non_finite = memchr(failed, 1, ranks) != NULL;
    return status;
}

ddp_status ddpi_ring_run(struct ddpi_device *device, struct ddpi_task *task)
{
    const struct ddp_comm *comm = device->comm;
    const struct ddpi_offer *previous =
        &device->offers[2 * ddpi_ring_prev(comm->rank, comm->world_size)];
    const struct ddpi_offer theirs[DDPI_OFFERS] = {[DDPI_OFFER_SEND] = previous[DDPI_OFFER_SEND],
                                                   [DDPI_OFFER_RECV] = previous[DDPI_OFFER_RECV],
                                                   [DDPI_OFFER_SCRATCH] = device->previous_scratch};
    const struct ddpi_ends ends = {
        .prev = comm->edges.ring[DDPI_PREV],
        .next = comm->edges.ring[DDPI_NEXT],
        .reads_prev = ddpi_ring_edge_reads(device, comm->rank),
        .read_by_next = ddpi_ring_edge_reads(device, ddpi_ring_next(comm->rank, comm->world_size)),
        .theirs = theirs,
        .piece = piece_for(device)};
    struct ddpi_wait wait = ddpi_device_wait(task);
    uint32_t next = ddpi_ring_next(comm->rank, comm->world_size);
    ddp_status status = DDP_OK;
    if (ends.read_by_next && device->offers[2 * next].process != device->shares.process)
        status = ddpi_pass_descriptors(device, ends.next, next, &device->offers[2 * comm->rank], 2);
    if (status == DDP_OK && ends.reads_prev)
        status = ddpi_receive_descriptors(device, &wait, ends.prev, theirs, 2);
    if (status == DDP_OK)
        status = ddpi_pipeline_run(device, task, &ends);
    return status == DDP_OK && task->call.finite_check ? share_check(device, task) : status;
}
