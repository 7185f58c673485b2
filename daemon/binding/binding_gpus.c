/*
 * binding_gpus.c - finds the GPUs in hwloc's description of the machine, where they stand in the
 * order of packages. Owns copies of the sets, which outlive a restriction of the topology.
 */
#include "binding_gpus.h"

#include "error.h"
#include "parse.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NVIDIA = 0x10de, DISPLAY_CLASS = 0x03 };

/* A container sees all devices in /sys, but the driver shows it only its own. */
static bool can_be_used(const char *driver, const struct hwloc_pcidev_attr_s *pci)
{
    char path[256];
    if (access(driver, F_OK) != 0)
        return true;
    snprintf(path, sizeof path, "%s/%04x:%02x:%02x.%x", driver, (unsigned)pci->domain, pci->bus,
             pci->dev, pci->func);
    return access(path, F_OK) == 0;
}

static int by_place(const void *one, const void *other)
{
    uint64_t a = ((const struct binding_gpu *)one)->place;
    uint64_t b = ((const struct binding_gpu *)other)->place;
    return (a > b) - (a < b);
}

ddp_status binding_gpus_find(struct binding_gpus *gpus, hwloc_topology_t topology,
                             const char *driver, struct ddp_error *err)
{
    for (hwloc_obj_t device = NULL; (device = hwloc_get_next_pcidev(topology, device)) != NULL;) {
        const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
        hwloc_obj_t around = hwloc_get_non_io_ancestor_obj(topology, device);
        if (pci->vendor_id != NVIDIA || pci->class_id >> 8 != DISPLAY_CLASS || around == NULL ||
            gpus->count == BINDING_GPUS_MAX || !can_be_used(driver, pci))
            continue;
        hwloc_bitmap_t near = hwloc_bitmap_alloc();
        if (near == NULL || hwloc_bitmap_copy(near, around->cpuset) != 0) {
            hwloc_bitmap_free(near);
            return ddpi_error_set(err, DDP_E_NOMEM, "memory is short for the list of GPUs");
        }
        gpus->list[gpus->count++] = (struct binding_gpu){
            .place = (uint64_t)pci->domain << 24 | (uint64_t)pci->bus << 16 |
                     (uint64_t)pci->dev << 8 | pci->func,
            .near = near,
        };
    }
    qsort(gpus->list, gpus->count, sizeof *gpus->list, by_place);
    return DDP_OK;
}

void binding_gpus_finish(struct binding_gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        hwloc_bitmap_free(gpus->list[i].near);
    gpus->count = 0;
}

/* Blanks may be around a number, as CUDA allows. */
static uint32_t parse_device(const char *item, size_t len)
{
    char number[16];
    int64_t device;
    for (; len > 0 && isblank((unsigned char)*item); len--)
        item++;
    while (len > 0 && isblank((unsigned char)item[len - 1]))
        len--;
    snprintf(number, sizeof number, "%.*s", len < sizeof number ? (int)len : 0, item);
    return ddpi_parse_int(number, 0, BINDING_GPUS_MAX, &device, NULL) == DDP_OK ? (uint32_t)device
                                                                                : UINT32_MAX;
}

/* The GPU of a worker; UINT32_MAX: not known. */
static uint32_t device_of(const char *devices, uint32_t worker)
{
    const char *item;
    size_t len;
    if (devices == NULL)
        return worker;
    for (const char *cursor = devices; ddpi_parse_list_next(&cursor, ',', &item, &len); worker--)
        if (worker == 0)
            return parse_device(item, len);
    return UINT32_MAX;
}

hwloc_const_bitmap_t binding_gpus_near(const struct binding_gpus *gpus, const char *devices,
                                       uint32_t worker)
{
    uint32_t device = device_of(devices, worker);
    return device < gpus->count ? gpus->list[device].near : NULL;
}
