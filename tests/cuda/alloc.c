/*
 * alloc.c - the functions that get and free memory of a device, managed and pinned memory.
 */
#include "host.h"

static struct host_memory *allocate_device(struct host_context *context, size_t size)
{
    if (!host_memory_charge(context, size))
        return NULL;
    struct host_memory *memory =
        host_memory_add(HOST_MEMORY_DEVICE, context, context->device, size);
    if (memory == NULL) {
        host_memory_discharge(context, size);
        return NULL;
    }
    memory->fd = host_memfd(context->device, size, &memory->nonce);
    if (memory->fd >= 0)
        memory->bytes = host_map_new(size, memory->fd);
    if (memory->bytes == NULL) {
        host_memory_remove(memory);
        return NULL;
    }
    memory->base = host_tag(memory->bytes);
    return memory;
}

/* Memory that the host reaches too: its address is the same there. */
static struct host_memory *allocate_plain(enum host_memory_kind kind, struct host_context *context,
                                          size_t size)
{
    if (kind == HOST_MEMORY_MANAGED && !host_memory_charge(context, size))
        return NULL;
    struct host_memory *memory = host_memory_add(kind, context, context->device, size);
    if (memory == NULL) {
        if (kind == HOST_MEMORY_MANAGED)
            host_memory_discharge(context, size);
        return NULL;
    }
    memory->bytes = host_map_new(size, -1);
    if (memory->bytes == NULL) {
        host_memory_remove(memory);
        return NULL;
    }
    host_fill_with_noise(memory->bytes, size);
    memory->base = (uintptr_t)memory->bytes;
    return memory;
}

ddpi_cu_result cuMemAlloc(ddpi_cu_deviceptr *ret_pointer, size_t size)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemAlloc, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (size == 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    host_lock();
    const struct host_memory *memory = allocate_device(context, size);
    if (memory != NULL)
        *ret_pointer = memory->base;
    host_unlock();
    return memory != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_OUT_OF_MEMORY;
}

/* Not in the table, as the library refuses such memory: tests look it up by its symbol. */
DDP_API ddpi_cu_result cuMemAllocManaged(ddpi_cu_deviceptr *ret_pointer, size_t size,
                                         unsigned flags);

DDP_API ddpi_cu_result cuMemAllocManaged(ddpi_cu_deviceptr *ret_pointer, size_t size,
                                         unsigned flags)
{
    struct host_context *context = host_current();
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    if (size == 0 || flags == 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    host_lock();
    const struct host_memory *memory = allocate_plain(HOST_MEMORY_MANAGED, context, size);
    if (memory != NULL)
        *ret_pointer = memory->base;
    host_unlock();
    return memory != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_OUT_OF_MEMORY;
}

ddpi_cu_result cuMemHostAlloc(void **ret_pointer, size_t size, unsigned flags)
{
    (void)flags; /* with one address space all pinned memory is portable and mapped */
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemHostAlloc, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (size == 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    host_lock();
    const struct host_memory *memory = allocate_plain(HOST_MEMORY_PINNED, context, size);
    if (memory != NULL)
        *ret_pointer = memory->bytes;
    host_unlock();
    return memory != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_OUT_OF_MEMORY;
}

/* Under the lock. The memory may end only once nothing runs that could use it, so the driver waits
 * for everything in its context first; meanwhile another thread may have freed it. */
static ddpi_cu_result free_memory(ddpi_cu_deviceptr base, bool pinned, const char *who)
{
    struct host_memory *memory = host_memory_find(base);
    if (memory == NULL || memory->base != base || memory->kind == HOST_MEMORY_SHARED ||
        memory->kind == HOST_MEMORY_VIRTUAL || pinned != (memory->kind == HOST_MEMORY_PINNED))
        return DDPI_CU_ERROR_INVALID_VALUE;
    host_context_drain(memory->context, who);
    memory = host_memory_find(base);
    if (memory == NULL)
        return DDPI_CU_ERROR_INVALID_VALUE;
    host_memory_remove(memory);
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuMemFree(ddpi_cu_deviceptr pointer)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemFree, &context);
    if (result != DDPI_CU_SUCCESS || pointer == 0)
        return result;
    host_lock();
    result = free_memory(pointer, false, host_call_name(HOST_cuMemFree));
    host_unlock();
    return result;
}

ddpi_cu_result cuMemFreeHost(void *pointer)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemFreeHost, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    result = free_memory((uintptr_t)pointer, true, host_call_name(HOST_cuMemFreeHost));
    host_unlock();
    return result;
}
