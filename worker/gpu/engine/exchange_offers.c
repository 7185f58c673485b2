/*
 * exchange_offers.c - what precedes an operation of all ranks: each rank describes its buffers to
 * all others, and ranks that have to read a buffer that is new to them try to open it.
 *
 * That may fail even if scratch memory could be opened (probe_peers.c): memory that was allocated
 * where other memory was freed cannot be opened before the mapping of the freed memory is closed,
 * and mappings are closed between operations only (shared_buffer.h). So a buffer is read once its
 * readers have opened it and all ranks know that; until then its data goes through the host. All
 * ranks decide the same.
 */
#include "device_state.h"

#include "debug.h"
#include "steps.h"

#include <string.h>

static ddp_status exchange_all(struct ddpi_device *device, const struct ddpi_run *run)
{
    uint32_t rank = device->comm->rank;
    struct ddpi_offer *own = &device->offers[2 * rank];
    const struct ddpi_task *task = &run->task;
    size_t part = task->call.count * task->element_size, all = task->count * task->element_size;
    ddpi_share_offer(&device->shares, rank, task->send,
                     task->call.operation == DDPI_REDUCE_SCATTER ? all : part,
                     run->buffers.send.allocation, &own[0]);
    ddpi_share_offer(&device->shares, rank, task->recv,
                     task->call.operation == DDPI_ALL_GATHER ? all : part,
                     run->buffers.recv.allocation, &own[1]);
    return ddpi_device_gather(device, &run->task, device->offers, 2 * sizeof *own);
}

static bool all_known(const struct ddpi_device *device)
{
    for (uint32_t i = 0; i < 2 * device->comm->world_size; i++)
        if (device->offers[i].known == 0)
            return false;
    return true;
}

/* Try to open the two buffers of @owner. */
static bool opens_offers_of(struct ddpi_device *device, uint32_t owner)
{
    for (uint32_t i = 2 * owner; i < 2 * owner + 2; i++) {
        const struct ddpi_offer *offer = &device->offers[i];
        ddpi_cu_deviceptr address;
        struct ddp_error err;
        if (offer->way != DDPI_SHARE_IPC ||
            ddpi_share_open(&device->shares, offer, &address, &err) == DDP_OK)
            continue;
        ddpi_debug(device->comm->rank,
                   "cannot read a new buffer of rank %u yet, so its data goes through the host: %s",
                   owner, err.msg);
        return false;
    }
    return true;
}

/* The readers try to open the buffers, and tell all ranks the result. */
static ddp_status try_out(struct ddpi_device *device, const struct ddpi_task *task)
{
    uint32_t rank = device->comm->rank, ranks = device->comm->world_size;
    device->opens[rank] =
        !ddpi_ring_edge_reads(device, rank) || opens_offers_of(device, ddpi_ring_prev(rank, ranks));
    ddp_status status = ddpi_device_gather(device, task, device->opens, 1);
    if (status == DDP_OK && memchr(device->opens, 0, ranks) == NULL)
        for (uint32_t i = 2 * rank; i < 2 * rank + 2; i++)
            ddpi_share_known(&device->shares, &device->offers[i]);
    return status;
}

ddp_status ddpi_device_offer(struct ddpi_device *device, const struct ddpi_run *run)
{
    ddp_status status = exchange_all(device, run);
    memset(device->opens, 1, device->comm->world_size);
    return status == DDP_OK && !all_known(device) ? try_out(device, &run->task) : status;
}
