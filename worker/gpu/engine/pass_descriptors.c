/*
 * pass_descriptors.c - passes descriptors of virtual memory to its readers.
 */
#include "pass_descriptors.h"

#include "error.h"
#include "mem.h"
#include "steps.h"

#include <unistd.h>

static bool was_handed(const struct ddpi_device *device, uint32_t reader,
                       const struct ddpi_offer *offer)
{
    for (uint32_t i = 0; i < device->handed_count; i++) {
        const struct ddpi_handed *handed = &device->handed[i];
        if (handed->reader == reader && handed->allocation == offer->allocation &&
            handed->base == offer->address - offer->offset)
            return true;
    }
    return false;
}

/* Something else is mapped at @base now: the reader has dropped what was there before, and will
 * need it again. */
static void forget_handed(struct ddpi_device *device, uint32_t reader, uint64_t base)
{
    for (uint32_t i = device->handed_count; i-- > 0;)
        if (device->handed[i].reader == reader && device->handed[i].base == base)
            device->handed[i] = device->handed[--device->handed_count];
}

static ddp_status remember_handed(struct ddpi_device *device, uint32_t reader,
                                  const struct ddpi_offer *offer, struct ddp_error *err)
{
    uint64_t base = offer->address - offer->offset;
    forget_handed(device, reader, base);
    size_t count = device->handed_count + (size_t)1;
    struct ddpi_handed *handed = ddpi_realloc(device->handed, count, sizeof *handed);
    if (handed == NULL)
        return ddpi_error_nomem(err, count * sizeof *handed);
    handed[device->handed_count++] =
        (struct ddpi_handed){.reader = reader, .allocation = offer->allocation, .base = base};
    device->handed = handed;
    return DDP_OK;
}

static ddp_status hand_one(struct ddpi_device *device, struct ddpi_edge *edge, uint32_t reader,
                           const struct ddpi_offer *offer, struct ddp_error *err)
{
    int fd;
    ddp_status status = remember_handed(device, reader, offer, err);
    if (status == DDP_OK)
        status = ddpi_share_export(&device->shares, offer, &fd, err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_control_pass_fd(&edge->control, (uint32_t)offer->allocation, fd))
        status =
            ddpi_error_set(err, DDP_E_SYSTEM, "cannot pass a descriptor to %s", edge->peer_name);
    close(fd);
    return status;
}

ddp_status ddpi_pass_descriptors(struct ddpi_device *device, struct ddpi_edge *edge,
                                 uint32_t reader, const struct ddpi_offer *offers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (offers[i].way != DDPI_SHARE_FD || was_handed(device, reader, &offers[i]))
            continue;
        struct ddp_error err;
        ddp_status status = hand_one(device, edge, reader, &offers[i], &err);
        if (status != DDP_OK)
            return ddpi_device_fail(device, status, &err);
    }
    return DDP_OK;
}

static ddp_status take_one(struct ddpi_device *device, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge, const struct ddpi_offer *offer)
{
    const uint32_t tag = (uint32_t)offer->allocation;
    const struct ddpi_need need = {.edge = edge, .handover = true, .tag = tag};
    int fd;
    while ((fd = ddpi_control_take_fd(&edge->control, tag)) < 0) {
        ddp_status status = ddpi_device_await_ranks(device, wait, &need, 1);
        if (status != DDP_OK)
            return status;
    }
    struct ddp_error err;
    ddp_status status = ddpi_share_import(&device->shares, offer, fd, &err);
    close(fd);
    return status == DDP_OK ? DDP_OK : ddpi_device_fail(device, status, &err);
}

ddp_status ddpi_receive_descriptors(struct ddpi_device *device, const struct ddpi_wait *wait,
                                    struct ddpi_edge *edge, const struct ddpi_offer *offers,
                                    size_t count)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        if (ddpi_share_awaits(&device->shares, &offers[i]))
            status = take_one(device, wait, edge, &offers[i]);
    return status;
}
