/*
 * hwloc_library.c - defines the functions of hwloc that this program calls, also through inline
 * functions of its headers. Each passes its arguments on to the library that has been loaded. Owns
 * their addresses, which are the same for the whole process.
 */
#include "hwloc_library.h"

#include "error.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libhwloc.so.15"

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

static const struct {
    const char *name;
    size_t offset; /* of the member in struct hwloc_functions */
} rows[] = {
#define ROW(result, name, parameters, arguments) \
    {"hwloc_" #name, offsetof(struct hwloc_functions, name)},
    HWLOC_FUNCTION_MAP(ROW)
#undef ROW
};

ddp_status hwloc_library_load(struct ddp_error *err)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "--numa-binding needs %s, which cannot be loaded (%s); install it "
                              "(Debian: libhwloc15)",
                              LIBRARY, dlerror());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *symbol = dlsym(library, rows[i].name);
        if (symbol == NULL)
            return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                  "--numa-binding needs a newer hwloc: the installed %s has no %s",
                                  LIBRARY, rows[i].name);
        memcpy((char *)&loaded + rows[i].offset, &symbol, sizeof symbol);
    }
    return DDP_OK;
}

#define FORWARD(result, name, parameters, arguments) \
    result hwloc_##name parameters                   \
    {                                                \
        return loaded.name arguments;                \
    }
HWLOC_FUNCTION_MAP(FORWARD)
