/*
 * binding_choice.c - which processors each worker gets, from a description of the machine. Pure.
 */
#include "binding.h"

#include "error.h"

/* The processors of an object; all where the machine does not have it. */
static hwloc_const_bitmap_t set_of(hwloc_topology_t topology, hwloc_obj_t object)
{
    return object != NULL ? object->cpuset : hwloc_topology_get_topology_cpuset(topology);
}

static hwloc_const_bitmap_t nth_set(hwloc_topology_t topology, hwloc_obj_type_t type, unsigned n)
{
    return set_of(topology, hwloc_get_obj_by_type(topology, type, n));
}

static hwloc_const_bitmap_t nth_set_within(hwloc_topology_t topology, hwloc_const_bitmap_t within,
                                           hwloc_obj_type_t type, unsigned n)
{
    return set_of(topology, hwloc_get_obj_inside_cpuset_by_type(topology, within, type, n));
}

/* How many of them there are; 0 also if they are not all on one level. */
static unsigned count_within(hwloc_topology_t topology, hwloc_const_bitmap_t within,
                             hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_inside_cpuset_by_type(topology, within, type);
    return count > 0 ? (unsigned)count : 0;
}

/* The number of the NUMA node that a worker belongs to. */
static unsigned home_of(hwloc_topology_t topology, uint32_t worker, uint32_t nproc,
                        hwloc_const_bitmap_t near)
{
    int found = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    unsigned nodes = found > 0 ? (unsigned)found : 1;
    for (unsigned i = 0; near != NULL && i < nodes; i++)
        if (hwloc_bitmap_intersects(nth_set(topology, HWLOC_OBJ_NUMANODE, i), near))
            return i;
    return (unsigned)((uint64_t)worker * nodes / nproc);
}

/* How many workers share its node, and how many of them come before it. */
struct place {
    unsigned home;
    hwloc_const_bitmap_t node; /* the processors of its home */
    unsigned before, together;
};

static struct place place_of(hwloc_topology_t topology, uint32_t worker, uint32_t nproc,
                             const hwloc_const_bitmap_t *near)
{
    struct place place = {.home = home_of(topology, worker, nproc, near[worker])};
    place.node = nth_set(topology, HWLOC_OBJ_NUMANODE, place.home);
    for (uint32_t other = 0; other < nproc; other++) {
        if (home_of(topology, other, nproc, near[other]) != place.home)
            continue;
        place.before += other < worker;
        place.together++;
    }
    return place;
}

/* The package that has the node; the node itself where the machine shows none. */
static hwloc_const_bitmap_t package_of(hwloc_topology_t topology, hwloc_const_bitmap_t node)
{
    int packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    for (int i = 0; i < packages; i++) {
        hwloc_const_bitmap_t set = nth_set(topology, HWLOC_OBJ_PACKAGE, (unsigned)i);
        if (hwloc_bitmap_intersects(set, node))
            return set;
    }
    return node;
}

/* Its share of the node's cores: the first workers get those that are left over. */
static ddp_status exclusive(hwloc_topology_t topology, const struct place *place,
                            hwloc_bitmap_t set, struct ddp_error *err)
{
    unsigned cores = count_within(topology, place->node, HWLOC_OBJ_CORE);
    unsigned each = cores / place->together, more = cores % place->together;
    if (each == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--numa-binding=exclusive: NUMA node %u has %u cores for %u workers; "
                              "start fewer workers, or bind them to the whole node",
                              place->home, cores, place->together);
    unsigned from = place->before * each + (place->before < more ? place->before : more);
    unsigned to = from + each + (place->before < more);
    for (unsigned i = from; i < to; i++)
        hwloc_bitmap_or(set, set, nth_set_within(topology, place->node, HWLOC_OBJ_CORE, i));
    return DDP_OK;
}

/* One of the caches of the last level in its node. */
static hwloc_const_bitmap_t core_complex(hwloc_topology_t topology, const struct place *place)
{
    unsigned caches = count_within(topology, place->node, HWLOC_OBJ_L3CACHE);
    return caches == 0
               ? place->node
               : nth_set_within(topology, place->node, HWLOC_OBJ_L3CACHE, place->before % caches);
}

ddp_status binding_choose(hwloc_topology_t topology, enum binding_mode mode, uint32_t nproc,
                          const hwloc_const_bitmap_t *near, const hwloc_bitmap_t *ret_sets,
                          struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < nproc && status == DDP_OK; i++) {
        const struct place place = place_of(topology, i, nproc, near);
        hwloc_bitmap_zero(ret_sets[i]);
        switch (mode) {
        case BINDING_NODE:
            hwloc_bitmap_copy(ret_sets[i], place.node);
            break;
        case BINDING_SOCKET:
            hwloc_bitmap_copy(ret_sets[i], package_of(topology, place.node));
            break;
        case BINDING_EXCLUSIVE:
            status = exclusive(topology, &place, ret_sets[i], err);
            break;
        case BINDING_CORE_COMPLEX:
            hwloc_bitmap_copy(ret_sets[i], core_complex(topology, &place));
            break;
        case BINDING_NONE:
            hwloc_bitmap_copy(ret_sets[i], hwloc_topology_get_topology_cpuset(topology));
            break;
        }
    }
    return status;
}
