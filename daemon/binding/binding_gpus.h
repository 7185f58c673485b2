/*
 * binding_gpus.h - the GPUs of a machine, in the order in which CUDA numbers those of one kind:
 * that of their places on the bus.
 */
#ifndef DAEMON_BINDING_GPUS_H
#define DAEMON_BINDING_GPUS_H

#include <ddprun/status.h>
#include <hwloc.h>
#include <stdint.h>

enum { BINDING_GPUS_MAX = 64 };

struct binding_gpu {
    uint64_t place;      /* on the bus */
    hwloc_bitmap_t near; /* the processors near it */
};

/* A zeroed struct has none. */
struct binding_gpus {
    struct binding_gpu list[BINDING_GPUS_MAX];
    uint32_t count;
};

/* Find those of NVIDIA. @driver is a folder with an entry for each GPU that programs here can use,
 * such as "0000:17:00.0"; if it does not exist, all count. binding_gpus_finish() follows in any
 * case. */
DDP_MUST_CHECK ddp_status binding_gpus_find(struct binding_gpus *gpus, hwloc_topology_t topology,
                                            const char *driver, struct ddp_error *err);
void binding_gpus_finish(struct binding_gpus *gpus);

/* The processors near the GPU of a worker: entry @worker of @devices, which is
 * CUDA_VISIBLE_DEVICES, or that number if it is NULL. NULL: they are not known. */
hwloc_const_bitmap_t binding_gpus_near(const struct binding_gpus *gpus, const char *devices,
                                       uint32_t worker);

#endif
