/*
 * binding.c - looks at this machine, and keeps the processors of each worker in the form that the
 * kernel takes. Owns the sets.
 */
#include "binding.h"

#include "error.h"
#include "mem.h"
#include "parse.h"

#include <errno.h>
#include <hwloc/glibc-sched.h>
#include <stdio.h>

enum { NVIDIA = 0x10de, DISPLAY_CLASS = 0x03, DEVICES_MAX = 64 };

/* The processors near each GPU, in the order of their places on the bus, which is CUDA's for GPUs
 * of one kind. */
struct gpus {
    hwloc_const_bitmap_t near[DEVICES_MAX];
    uint32_t count;
};

static void find_gpus(hwloc_topology_t topology, struct gpus *ret)
{
    ret->count = 0;
    for (hwloc_obj_t device = NULL; (device = hwloc_get_next_pcidev(topology, device)) != NULL;) {
        const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
        hwloc_obj_t around = hwloc_get_non_io_ancestor_obj(topology, device);
        if (pci->vendor_id == NVIDIA && pci->class_id >> 8 == DISPLAY_CLASS && around != NULL &&
            ret->count < DEVICES_MAX)
            ret->near[ret->count++] = around->cpuset;
    }
}

/* The GPU of a worker: entry @worker of the list, or that number; UINT32_MAX: not known. */
static uint32_t device_of(const char *devices, uint32_t worker)
{
    const char *item;
    size_t len;
    char number[16];
    int64_t device;
    if (devices == NULL)
        return worker;
    for (const char *cursor = devices; ddpi_parse_list_next(&cursor, ',', &item, &len); worker--) {
        if (worker > 0)
            continue;
        snprintf(number, sizeof number, "%.*s", len < sizeof number ? (int)len : 0, item);
        return ddpi_parse_int(number, 0, DEVICES_MAX, &device, NULL) == DDP_OK ? (uint32_t)device
                                                                               : UINT32_MAX;
    }
    return UINT32_MAX;
}

/* The kernel's files are enough. Plug-ins that ask libraries of GPUs would load them into the
 * agent, which must not be. */
static void leave_out_plugins(hwloc_topology_t topology)
{
    static const char *const names[] = {"pci", "cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) /* fails if there is none */
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            names[i]);
}

static ddp_status look_at_machine(hwloc_topology_t *ret, struct ddp_error *err)
{
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    int done = hwloc_topology_init(ret);
    if (usable == NULL || done != 0) {
        hwloc_bitmap_free(usable);
        if (done == 0)
            hwloc_topology_destroy(*ret);
        return ddpi_error_set(err, DDP_E_NOMEM, "memory is short for the topology of the machine");
    }
    leave_out_plugins(*ret);
    hwloc_topology_set_io_types_filter(*ret, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    done = hwloc_topology_load(*ret);
    if (done == 0 && hwloc_get_cpubind(*ret, usable, HWLOC_CPUBIND_PROCESS) == 0)
        done = hwloc_topology_restrict(*ret, usable, HWLOC_RESTRICT_FLAG_REMOVE_CPULESS);
    hwloc_bitmap_free(usable);
    if (done == 0 && hwloc_get_nbobjs_by_type(*ret, HWLOC_OBJ_NUMANODE) > 0)
        return DDP_OK;
    hwloc_topology_destroy(*ret);
    return ddpi_error_set(
        err, DDP_E_SYSTEM,
        "--numa-binding: the processors of this machine cannot be told from /sys; leave it out");
}

static ddp_status keep_sets(struct binding *binding, hwloc_topology_t topology,
                            const hwloc_bitmap_t *sets, struct ddp_error *err)
{
    int last = hwloc_bitmap_last(hwloc_topology_get_complete_cpuset(topology));
    binding->size = CPU_ALLOC_SIZE((size_t)(last > 0 ? last : 0) + 1);
    binding->cores = UINT32_MAX;
    for (uint32_t i = 0; i < binding->nproc; i++) {
        int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, sets[i], HWLOC_OBJ_CORE);
        binding->sets[i] = ddpi_calloc(1, binding->size);
        if (binding->sets[i] == NULL)
            return ddpi_error_nomem(err, binding->size);
        if (hwloc_cpuset_to_glibc_sched_affinity(topology, sets[i], binding->sets[i],
                                                 binding->size) != 0)
            return ddpi_error_sys(err, errno, "cannot express the processors of worker %u", i);
        if (cores > 0 && (uint32_t)cores < binding->cores)
            binding->cores = (uint32_t)cores;
    }
    return DDP_OK;
}

static ddp_status choose_sets(struct binding *binding, hwloc_topology_t topology,
                              enum binding_mode mode, const char *devices, struct ddp_error *err)
{
    uint32_t nproc = binding->nproc, made = 0;
    struct gpus gpus;
    hwloc_const_bitmap_t *near = ddpi_calloc(nproc, sizeof *near);
    hwloc_bitmap_t *sets = ddpi_calloc(nproc, sizeof *sets);
    ddp_status status = near != NULL && sets != NULL ? DDP_OK : ddpi_error_nomem(err, nproc);
    find_gpus(topology, &gpus);
    for (; status == DDP_OK && made < nproc; made++) {
        uint32_t device = device_of(devices, made);
        near[made] = device < gpus.count ? gpus.near[device] : NULL;
        binding->by_gpu = binding->by_gpu || near[made] != NULL;
        if ((sets[made] = hwloc_bitmap_alloc()) == NULL)
            status = ddpi_error_nomem(err, nproc);
    }
    if (status == DDP_OK)
        status = binding_choose(topology, mode, nproc, near, sets, err);
    if (status == DDP_OK)
        status = keep_sets(binding, topology, sets, err);
    for (uint32_t i = 0; i < made; i++)
        hwloc_bitmap_free(sets[i]);
    ddpi_free(sets);
    ddpi_free(near);
    return status;
}

ddp_status binding_make(struct binding *binding, enum binding_mode mode, uint32_t nproc,
                        const char *devices, struct ddp_error *err)
{
    hwloc_topology_t topology;
    *binding = (struct binding){.nproc = nproc};
    if (mode == BINDING_NONE)
        return DDP_OK;
    binding->sets = ddpi_calloc(nproc, sizeof *binding->sets);
    if (binding->sets == NULL)
        return ddpi_error_nomem(err, nproc * sizeof *binding->sets);
    ddp_status status = look_at_machine(&topology, err);
    if (status != DDP_OK)
        return status;
    status = choose_sets(binding, topology, mode, devices, err);
    hwloc_topology_destroy(topology);
    return status;
}

void binding_finish(struct binding *binding)
{
    for (uint32_t i = 0; binding->sets != NULL && i < binding->nproc; i++)
        ddpi_free(binding->sets[i]);
    ddpi_free(binding->sets);
    *binding = (struct binding){0};
}
