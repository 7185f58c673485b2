/*
 * opened_types.c - see progress_impl.h. Owns nothing.
 *
 * To ask whether the library of a type is loaded costs some 20 ns, as the dynamic linker counts
 * what it loads and unloads: only when a count has changed is the library looked up again.
 */
#include "progress_impl.h"

#include "communicator.h"
#include "error.h"

#include <dlfcn.h>
#include <link.h>

/* How often the dynamic linker has loaded or unloaded something. */
static int read_version(struct dl_phdr_info *info, size_t size, void *version)
{
    (void)size;
    *(unsigned long long *)version = info->dlpi_adds + info->dlpi_subs;
    return 1; /* every object has the same counts */
}

static unsigned long long linker_version(void)
{
    unsigned long long version = 0;
    dl_iterate_phdr(read_version, &version);
    return version;
}

/* NULL: @library is not loaded. Does not load it. */
static void *loaded_symbol(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle != NULL ? dlsym(handle, symbol) : NULL;
    if (handle != NULL)
        dlclose(handle);
    return found;
}

static void update_symbols(struct ddpi_memories *memories, unsigned long long version)
{
    if (version == memories->linker_version)
        return;
    for (unsigned i = 0; memories->types[i]->library != NULL; i++)
        memories->symbols[i] =
            loaded_symbol(memories->types[i]->library, memories->types[i]->symbol);
    memories->linker_version = version;
}

static ddp_status open_type(struct ddp_comm *comm, unsigned index, struct ddp_error *err)
{
    struct ddpi_memories *memories = &comm->memories;
    const struct ddpi_memory_type *type = memories->types[index];
    struct ddpi_memory *opened = NULL;
    ddp_status status = type->open(comm, &opened);
    memories->open[index] = opened;
    if (status == DDP_E_NOMEM)
        return ddpi_error_set(err, status, "no memory for the use of a %s", type->name);
    if (status != DDP_OK)
        memories->symbols[index] = NULL; /* what does not start has no memory */
    return DDP_OK;
}

/* Under the lock: open the types that this process has begun to use. */
static ddp_status open_types(struct ddp_comm *comm, unsigned long long version,
                             struct ddp_error *err)
{
    struct ddpi_memories *memories = &comm->memories;
    ddp_status status = DDP_OK;
    bool all_known = true;
    update_symbols(memories, version);
    for (unsigned i = 0; memories->types[i]->library != NULL && status == DDP_OK; i++) {
        if (memories->open[i] != NULL || memories->symbols[i] == NULL)
            continue;
        if (memories->types[i]->is_started(memories->symbols[i]))
            status = open_type(comm, i, err);
        else
            all_known = false; /* ask again before the next operation */
    }
    if (status == DDP_OK && all_known)
        atomic_store_explicit(&memories->known_version, version, memory_order_release);
    return status;
}

static bool is_known(const struct ddpi_memories *memories, unsigned long long version)
{
    return atomic_load_explicit(&memories->known_version, memory_order_acquire) == version;
}

ddp_status ddpi_types_open_used(struct ddp_comm *comm, struct ddp_error *err)
{
    unsigned long long version = linker_version();
    if (is_known(&comm->memories, version))
        return DDP_OK; /* nothing can have changed since the last time */
    pthread_mutex_lock(&comm->runs.lock);
    ddp_status status = open_types(comm, version, err);
    pthread_mutex_unlock(&comm->runs.lock);
    return status;
}

bool ddpi_types_only_host_is_open(const struct ddpi_memories *memories)
{
    for (unsigned i = 0; memories->types[i]->library != NULL; i++)
        if (memories->open[i] != NULL)
            return false;
    return true;
}

bool ddpi_types_only_host_is_used(const struct ddpi_memories *memories)
{
    return ddpi_types_only_host_is_open(memories) && is_known(memories, linker_version());
}
