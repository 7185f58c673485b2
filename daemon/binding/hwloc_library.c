/*
 * hwloc_library.c - defines the functions of hwloc that this program calls, also through inline
 * functions of its headers. Each passes its arguments on to the library that has been loaded. Owns
 * their addresses, which are the same for the whole process.
 */
#include "hwloc_library.h"

#include "library.h"

#include <hwloc.h>

/* X(result, name after "hwloc_", parameters, arguments) */
#define HWLOC_FUNCTION_MAP(X)                                                                      \
    X(int, topology_init, (hwloc_topology_t * topology), (topology))                               \
    X(int, topology_set_components,                                                                \
      (hwloc_topology_t topology, unsigned long flags, const char *name), (topology, flags, name)) \
    X(int, topology_set_io_types_filter,                                                           \
      (hwloc_topology_t topology, enum hwloc_type_filter_e filter), (topology, filter))            \
    X(int, topology_load, (hwloc_topology_t topology), (topology))                                 \
    X(int, topology_restrict,                                                                      \
      (hwloc_topology_t topology, hwloc_const_bitmap_t set, unsigned long flags),                  \
      (topology, set, flags))                                                                      \
    X(void, topology_destroy, (hwloc_topology_t topology), (topology))                             \
    X(hwloc_const_bitmap_t, topology_get_complete_cpuset, (hwloc_topology_t topology), (topology)) \
    X(hwloc_const_bitmap_t, topology_get_topology_cpuset, (hwloc_topology_t topology), (topology)) \
    X(int, get_cpubind, (hwloc_topology_t topology, hwloc_bitmap_t set, int flags),                \
      (topology, set, flags))                                                                      \
    X(int, get_type_depth, (hwloc_topology_t topology, hwloc_obj_type_t type), (topology, type))   \
    X(unsigned, get_nbobjs_by_depth, (hwloc_topology_t topology, int depth), (topology, depth))    \
    X(hwloc_obj_t, get_obj_by_depth, (hwloc_topology_t topology, int depth, unsigned index),       \
      (topology, depth, index))                                                                    \
    X(hwloc_bitmap_t, bitmap_alloc, (void), ())                                                    \
    X(void, bitmap_free, (hwloc_bitmap_t set), (set))                                              \
    X(int, bitmap_copy, (hwloc_bitmap_t to, hwloc_const_bitmap_t from), (to, from))                \
    X(void, bitmap_zero, (hwloc_bitmap_t set), (set))                                              \
    X(int, bitmap_or, (hwloc_bitmap_t set, hwloc_const_bitmap_t one, hwloc_const_bitmap_t other),  \
      (set, one, other))                                                                           \
    X(int, bitmap_iszero, (hwloc_const_bitmap_t set), (set))                                       \
    X(int, bitmap_isincluded, (hwloc_const_bitmap_t set, hwloc_const_bitmap_t whole),              \
      (set, whole))                                                                                \
    X(int, bitmap_intersects, (hwloc_const_bitmap_t one, hwloc_const_bitmap_t other),              \
      (one, other))                                                                                \
    X(int, bitmap_first, (hwloc_const_bitmap_t set), (set))                                        \
    X(int, bitmap_next, (hwloc_const_bitmap_t set, int previous), (set, previous))                 \
    X(int, bitmap_last, (hwloc_const_bitmap_t set), (set))                                         \
    X(int, bitmap_weight, (hwloc_const_bitmap_t set), (set))

static struct hwloc_functions {
#define MEMBER(result, name, parameters, arguments) result(*name) parameters;
    HWLOC_FUNCTION_MAP(MEMBER)
#undef MEMBER
} loaded;

static const struct ddpi_symbol symbols[] = {
#define SYMBOL(result, name, parameters, arguments) \
    {"hwloc_" #name, offsetof(struct hwloc_functions, name), false},
    HWLOC_FUNCTION_MAP(SYMBOL)
#undef SYMBOL
};

ddp_status hwloc_library_load(struct ddp_error *err)
{
    static const struct ddpi_library library = {.soname = "libhwloc.so.15",
                                                .user = "--numa-binding",
                                                .product = "",
                                                .newer = "a newer hwloc:",
                                                .package = "libhwloc15"};
    return ddpi_library_load(&library, symbols, sizeof symbols / sizeof *symbols, &loaded, err);
}

#define FORWARD(result, name, parameters, arguments) \
    result hwloc_##name parameters                   \
    {                                                \
        return loaded.name arguments;                \
    }
HWLOC_FUNCTION_MAP(FORWARD)
