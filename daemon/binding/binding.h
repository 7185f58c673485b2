/*
 * binding.h - the processors of each worker: those near its GPU or NUMA node, as torchrun's
 * --numa-binding has it.
 *
 *   node          all of the NUMA node
 *   socket        all of the package that the node belongs to
 *   exclusive     cores of the node that no other worker has
 *   core-complex  those that share the last level of cache, another one for each worker
 *
 * A worker belongs to the NUMA node of the GPU with its local rank; without GPUs workers are
 * divided among the nodes, in blocks.
 */
#ifndef DAEMON_BINDING_H
#define DAEMON_BINDING_H

#include <ddprun/status.h>
#include <hwloc.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the words of --numa-binding. */
enum binding_mode {
    BINDING_NODE,
    BINDING_SOCKET,
    BINDING_EXCLUSIVE,
    BINDING_CORE_COMPLEX,
    BINDING_NONE,
};

/* A zeroed struct binds nothing. */
struct binding {
    cpu_set_t **sets; /* of each worker */
    size_t size;      /* of each set, in bytes */
    uint32_t nproc;
    uint32_t cores; /* the fewest that a worker has */
    bool by_gpu;    /* what is near each worker's GPU is known */
};

/* Choose for @nproc workers of this machine, within the processors that this process may use.
 * @devices is CUDA_VISIBLE_DEVICES, or NULL. Reads /sys, some milliseconds. DDP_E_INVALID: there
 * are too few cores to be exclusive; DDP_E_SYSTEM: the machine cannot be looked at.
 * binding_finish() follows in any case. */
DDP_MUST_CHECK ddp_status binding_make(struct binding *binding, enum binding_mode mode,
                                       uint32_t nproc, const char *devices, struct ddp_error *err);
void binding_finish(struct binding *binding);

/* The processors of a worker; NULL: it is not bound. */
static inline const cpu_set_t *binding_of(const struct binding *binding, uint32_t local_rank)
{
    return binding->sets != NULL ? binding->sets[local_rank] : NULL;
}

/* A machine as hwloc describes it, with its devices. */
struct binding_machine {
    hwloc_topology_t topology;   /* of the whole machine; it is restricted to @usable */
    hwloc_const_bitmap_t usable; /* the processors that this process may use */
    const char *driver;          /* see binding_gpus_find() */
};

/* As binding_make(), on @machine. */
DDP_MUST_CHECK ddp_status binding_make_on(struct binding *binding,
                                          const struct binding_machine *machine,
                                          enum binding_mode mode, uint32_t nproc,
                                          const char *devices, struct ddp_error *err);

/*
 * The choice itself; pure. near[i] are the processors near the GPU of worker i, NULL if it has
 * none. The sets are written to ret_sets[i], which exist.
 */
DDP_MUST_CHECK ddp_status binding_choose(hwloc_topology_t topology, enum binding_mode mode,
                                         uint32_t nproc, const hwloc_const_bitmap_t *near,
                                         const hwloc_bitmap_t *ret_sets, struct ddp_error *err);

#endif
