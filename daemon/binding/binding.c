/*
 * binding.c - looks at this machine, and keeps the processors of each worker in the form that the
 * kernel takes. Owns the sets.
 */
#include "binding.h"
#include "binding_gpus.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <hwloc/glibc-sched.h>

/* The kernel's files are enough. Plug-ins that ask libraries of GPUs would load them into the
 * agent, which must not be. */
static void leave_out_plugins(hwloc_topology_t topology)
{
    static const char *const names[] = {"pci", "cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) /* fails if there is none */
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            names[i]);
}

static ddp_status cannot_tell(struct ddp_error *err)
{
    return ddpi_error_set(
        err, DDP_E_SYSTEM,
        "--numa-binding: the processors of this machine cannot be told from /sys; leave it out");
}

static ddp_status look_at_machine(hwloc_topology_t *ret, struct ddp_error *err)
{
    if (hwloc_topology_init(ret) != 0)
        return ddpi_error_set(err, DDP_E_NOMEM, "memory is short for the topology of the machine");
    leave_out_plugins(*ret);
    hwloc_topology_set_io_types_filter(*ret, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(*ret) == 0)
        return DDP_OK;
    hwloc_topology_destroy(*ret);
    return cannot_tell(err);
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

/* Write to near[] what is known of each worker's GPU. It is of no use if this process may not use
 * the processors there. */
static void find_near(struct binding *binding, hwloc_const_bitmap_t usable,
                      const struct binding_gpus *gpus, const char *devices,
                      hwloc_const_bitmap_t *near)
{
    binding->by_gpu = true;
    for (uint32_t i = 0; i < binding->nproc; i++) {
        near[i] = binding_gpus_near(gpus, devices, i);
        if (near[i] != NULL && !hwloc_bitmap_intersects(near[i], usable))
            near[i] = NULL;
        binding->by_gpu = binding->by_gpu && near[i] != NULL;
    }
}

static ddp_status choose_sets(struct binding *binding, hwloc_topology_t topology,
                              enum binding_mode mode, const hwloc_const_bitmap_t *near,
                              struct ddp_error *err)
{
    uint32_t nproc = binding->nproc, made = 0;
    hwloc_bitmap_t *sets = ddpi_calloc(nproc, sizeof *sets);
    ddp_status status = sets != NULL ? DDP_OK : ddpi_error_nomem(err, nproc * sizeof *sets);
    for (; status == DDP_OK && made < nproc; made++)
        if ((sets[made] = hwloc_bitmap_alloc()) == NULL)
            status = ddpi_error_nomem(err, nproc);
    if (status == DDP_OK)
        status = binding_choose(topology, mode, nproc, near, sets, err);
    if (status == DDP_OK)
        status = keep_sets(binding, topology, sets, err);
    for (uint32_t i = 0; i < made; i++)
        hwloc_bitmap_free(sets[i]);
    ddpi_free(sets);
    return status;
}

/* The GPUs are found first, as the restriction takes those of other processors away, and then the
 * others have the wrong numbers. */
ddp_status binding_make_on(struct binding *binding, const struct binding_machine *machine,
                           enum binding_mode mode, uint32_t nproc, const char *devices,
                           struct ddp_error *err)
{
    hwloc_topology_t topology = machine->topology;
    struct binding_gpus gpus = {0};
    *binding = (struct binding){.nproc = nproc};
    binding->sets = ddpi_calloc(nproc, sizeof *binding->sets);
    hwloc_const_bitmap_t *near = ddpi_calloc(nproc, sizeof *near);
    ddp_status status = binding->sets != NULL && near != NULL
                            ? binding_gpus_find(&gpus, topology, machine->driver, err)
                            : ddpi_error_nomem(err, nproc * sizeof *near);
    if (status == DDP_OK && (hwloc_topology_restrict(topology, machine->usable,
                                                     HWLOC_RESTRICT_FLAG_REMOVE_CPULESS) != 0 ||
                             hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) <= 0))
        status = cannot_tell(err);
    if (status == DDP_OK) {
        find_near(binding, machine->usable, &gpus, devices, near);
        status = choose_sets(binding, topology, mode, near, err);
    }
    binding_gpus_finish(&gpus);
    ddpi_free(near);
    return status;
}

ddp_status binding_make(struct binding *binding, enum binding_mode mode, uint32_t nproc,
                        const char *devices, struct ddp_error *err)
{
    struct binding_machine machine = {.driver = "/proc/driver/nvidia/gpus"};
    *binding = (struct binding){.nproc = nproc};
    if (mode == BINDING_NONE)
        return DDP_OK;
    ddp_status status = look_at_machine(&machine.topology, err);
    if (status != DDP_OK)
        return status;
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    if (usable == NULL) {
        status = ddpi_error_set(err, DDP_E_NOMEM, "memory is short for a set of processors");
    } else {
        if (hwloc_get_cpubind(machine.topology, usable, HWLOC_CPUBIND_PROCESS) != 0)
            hwloc_bitmap_copy(usable, hwloc_topology_get_topology_cpuset(machine.topology));
        machine.usable = usable;
        status = binding_make_on(binding, &machine, mode, nproc, devices, err);
    }
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(machine.topology);
    return status;
}

void binding_finish(struct binding *binding)
{
    for (uint32_t i = 0; binding->sets != NULL && i < binding->nproc; i++)
        ddpi_free(binding->sets[i]);
    ddpi_free(binding->sets);
    *binding = (struct binding){0};
}
