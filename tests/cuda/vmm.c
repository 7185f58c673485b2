/*
 * vmm.c - virtual memory: addresses, physical memory and the mapping of one to the other as three
 * things, and physical memory of another process through a file descriptor.
 */
#include "host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20 };

/* A memfd; a handle that the program holds and each mapping have a reference. */
struct host_physical {
    struct ddpi_list link;
    uint64_t handle;
    struct host_context *charged; /* NULL: the memory of another process */
    int device;
    size_t size;
    int fd;
    uint64_t nonce;
    unsigned handle_types;
    unsigned held;       /* by the program: cuMemCreate, import and retain less release */
    unsigned references; /* those, and one for each mapping */
};

struct reservation {
    struct ddpi_list link;
    ddpi_cu_deviceptr base;
    size_t size;
};

static struct ddpi_list physicals = {&physicals, &physicals};
static struct ddpi_list reservations = {&reservations, &reservations};
static uint64_t last_handle = 0x5000;

static struct host_physical *find_physical(uint64_t handle)
{
    ddpi_list_for_each (node, &physicals) {
        struct host_physical *physical = ddpi_container_of(node, struct host_physical, link);
        if (physical->handle == handle && physical->held > 0)
            return physical;
    }
    return NULL;
}

static struct reservation *find_reservation(ddpi_cu_deviceptr pointer, size_t size)
{
    ddpi_list_for_each (node, &reservations) {
        struct reservation *reserved = ddpi_container_of(node, struct reservation, link);
        if (pointer >= reserved->base && pointer - reserved->base < reserved->size &&
            size <= reserved->size - (pointer - reserved->base))
            return reserved;
    }
    return NULL;
}

void host_physical_drop(struct host_physical *physical)
{
    if (--physical->references > 0)
        return;
    if (physical->charged != NULL)
        host_memory_discharge(physical->charged, physical->size);
    close(physical->fd);
    ddpi_list_remove(&physical->link);
    free(physical);
}

uint64_t host_physical_retain(struct host_physical *physical)
{
    physical->references++;
    physical->held++;
    return physical->handle;
}

unsigned host_physical_handle_types(const struct host_physical *physical)
{
    return physical->handle_types;
}

uint64_t host_physical_id(const struct host_physical *physical)
{
    return physical->handle;
}

/* Takes @fd in any case. */
static struct host_physical *add_physical(int device, size_t size, int fd, uint64_t nonce)
{
    struct host_physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL) {
        close(fd);
        return NULL;
    }
    *physical = (struct host_physical){.handle = ++last_handle,
                                       .device = device,
                                       .size = size,
                                       .fd = fd,
                                       .nonce = nonce,
                                       .held = 1,
                                       .references = 1};
    ddpi_list_append(&physicals, &physical->link);
    return physical;
}

static bool is_usable(const struct ddpi_cu_mem_prop *prop)
{
    return prop->type == DDPI_CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == DDPI_CU_MEM_LOCATION_TYPE_DEVICE &&
           (prop->requested_handle_types &
            ~(unsigned)DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0;
}

ddpi_cu_result cuMemGetAllocationGranularity(size_t *ret_granularity,
                                             const struct ddpi_cu_mem_prop *prop, unsigned option)
{
    ddpi_cu_result result = host_enter(HOST_cuMemGetAllocationGranularity);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (!is_usable(prop) || option > DDPI_CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return DDPI_CU_ERROR_INVALID_VALUE;
    *ret_granularity = GRANULARITY;
    return DDPI_CU_SUCCESS;
}

/* Under the lock. */
static ddpi_cu_result create(struct host_context *context, size_t size, unsigned handle_types,
                             ddpi_cu_mem_handle *ret_handle)
{
    if (!host_memory_charge(context, size))
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    uint64_t nonce = 0;
    int fd = host_memfd(context->device, size, &nonce);
    struct host_physical *physical = NULL;
    if (fd >= 0)
        physical = add_physical(context->device, size, fd, nonce);
    if (physical == NULL) {
        host_memory_discharge(context, size);
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    }
    physical->charged = context;
    physical->handle_types = handle_types;
    *ret_handle = physical->handle;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuMemCreate(ddpi_cu_mem_handle *ret_handle, size_t size,
                           const struct ddpi_cu_mem_prop *prop, unsigned long long flags)
{
    ddpi_cu_result result = host_enter(HOST_cuMemCreate);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (size == 0 || size % GRANULARITY != 0 || flags != 0 || !is_usable(prop))
        return DDPI_CU_ERROR_INVALID_VALUE;
    struct host_context *context = host_device_context(prop->location.id);
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_DEVICE;
    host_lock();
    result = create(context, size, prop->requested_handle_types, ret_handle);
    host_unlock();
    return result;
}

ddpi_cu_result cuMemRelease(ddpi_cu_mem_handle handle)
{
    ddpi_cu_result result = host_enter(HOST_cuMemRelease);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct host_physical *physical = find_physical(handle);
    if (physical == NULL) {
        result = DDPI_CU_ERROR_INVALID_VALUE;
    } else {
        physical->held--;
        host_physical_drop(physical);
    }
    host_unlock();
    return result;
}

ddpi_cu_result cuMemAddressReserve(ddpi_cu_deviceptr *ret_pointer, size_t size, size_t alignment,
                                   ddpi_cu_deviceptr wanted, unsigned long long flags)
{
    (void)wanted; /* a wish that the driver need not fulfil */
    ddpi_cu_result result = host_enter(HOST_cuMemAddressReserve);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (size == 0 || size % GRANULARITY != 0 || alignment > GRANULARITY || flags != 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    struct reservation *reserved = calloc(1, sizeof *reserved);
    if (reserved == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    host_lock();
    char *range = host_range_take(size + GRANULARITY);
    if (range != NULL) {
        uintptr_t aligned = ((uintptr_t)range + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
        reserved->base = host_tag((char *)aligned);
        reserved->size = size;
        ddpi_list_append(&reservations, &reserved->link);
        *ret_pointer = reserved->base;
    }
    host_unlock();
    if (range == NULL)
        free(reserved);
    return range != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_OUT_OF_MEMORY;
}

/* Whether any of the @size bytes are mapped; chunks are as coarse as mappings. */
static bool is_mapped(ddpi_cu_deviceptr pointer, size_t size)
{
    for (size_t at = 0; at < size; at += GRANULARITY)
        if (host_memory_find(pointer + at) != NULL)
            return true;
    return false;
}

ddpi_cu_result cuMemAddressFree(ddpi_cu_deviceptr pointer, size_t size)
{
    ddpi_cu_result result = host_enter(HOST_cuMemAddressFree);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct reservation *reserved = find_reservation(pointer, size);
    if (reserved == NULL || reserved->base != pointer || reserved->size != size ||
        is_mapped(pointer, size)) {
        result = DDPI_CU_ERROR_INVALID_VALUE;
    } else {
        ddpi_list_remove(&reserved->link);
        free(reserved);
    }
    host_unlock();
    return result;
}

/* Under the lock. */
static ddpi_cu_result map(ddpi_cu_deviceptr pointer, size_t size, struct host_physical *physical)
{
    struct host_memory *memory = host_memory_add(
        HOST_MEMORY_VIRTUAL, host_device_context(physical->device), physical->device, size);
    if (memory == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    void *bytes = mmap(host_untag(pointer), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       physical->fd, 0);
    if (bytes == MAP_FAILED) {
        host_memory_remove(memory);
        return DDPI_CU_ERROR_MAP_FAILED;
    }
    memory->bytes = bytes;
    memory->base = pointer;
    memory->physical = physical;
    physical->references++;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuMemMap(ddpi_cu_deviceptr pointer, size_t size, size_t offset,
                        ddpi_cu_mem_handle handle, unsigned long long flags)
{
    ddpi_cu_result result = host_enter(HOST_cuMemMap);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct host_physical *physical = find_physical(handle);
    if (physical == NULL || offset != 0 || flags != 0 || size != physical->size ||
        pointer % GRANULARITY != 0 || find_reservation(pointer, size) == NULL ||
        is_mapped(pointer, size))
        result = DDPI_CU_ERROR_INVALID_VALUE;
    else
        result = map(pointer, size, physical);
    host_unlock();
    return result;
}

/* Under the lock: the whole mapping at @pointer. */
static struct host_memory *find_mapping(ddpi_cu_deviceptr pointer, size_t size)
{
    struct host_memory *memory = host_memory_find(pointer);
    if (memory == NULL || memory->kind != HOST_MEMORY_VIRTUAL || memory->base != pointer ||
        memory->size != size)
        return NULL;
    return memory;
}

ddpi_cu_result cuMemUnmap(ddpi_cu_deviceptr pointer, size_t size)
{
    ddpi_cu_result result = host_enter(HOST_cuMemUnmap);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct host_memory *memory = find_mapping(pointer, size);
    if (memory != NULL) {
        host_context_drain(memory->context, host_call_name(HOST_cuMemUnmap));
        memory = find_mapping(pointer, size);
    }
    if (memory == NULL)
        result = DDPI_CU_ERROR_INVALID_VALUE;
    else
        host_memory_remove(memory);
    host_unlock();
    return result;
}

/* Whether @access names devices that can reach the memory of @device. */
static bool is_access_possible(const struct ddpi_cu_mem_access *access, size_t count, int device)
{
    for (size_t i = 0; i < count; i++) {
        int id = access[i].location.id;
        if (access[i].location.type != DDPI_CU_MEM_LOCATION_TYPE_DEVICE ||
            host_device_context(id) == NULL || (id != device && !host_can_access(id, device)))
            return false;
    }
    return true;
}

ddpi_cu_result cuMemSetAccess(ddpi_cu_deviceptr pointer, size_t size,
                              const struct ddpi_cu_mem_access *access, size_t count)
{
    ddpi_cu_result result = host_enter(HOST_cuMemSetAccess);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct host_memory *memory = find_mapping(pointer, size);
    if (memory == NULL || !is_access_possible(access, count, memory->device)) {
        result = DDPI_CU_ERROR_INVALID_VALUE;
    } else {
        for (size_t i = 0; i < count; i++)
            memory->access[access[i].location.id] =
                access[i].flags == DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    host_unlock();
    return result;
}

ddpi_cu_result cuMemRetainAllocationHandle(ddpi_cu_mem_handle *ret_handle, void *pointer)
{
    ddpi_cu_result result = host_enter(HOST_cuMemRetainAllocationHandle);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_memory *memory = host_memory_find((uintptr_t)pointer);
    if (memory == NULL || memory->kind != HOST_MEMORY_VIRTUAL)
        result = DDPI_CU_ERROR_INVALID_VALUE;
    else
        *ret_handle = host_physical_retain(memory->physical);
    host_unlock();
    return result;
}

ddpi_cu_result cuMemExportToShareableHandle(void *ret_shareable, ddpi_cu_mem_handle handle,
                                            unsigned type, unsigned long long flags)
{
    ddpi_cu_result result = host_enter(HOST_cuMemExportToShareableHandle);
    if (result != DDPI_CU_SUCCESS)
        return result;
    int fd = -1;
    host_lock();
    const struct host_physical *physical = find_physical(handle);
    if (physical == NULL || flags != 0 || type != DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (physical->handle_types & type) == 0)
        result = DDPI_CU_ERROR_INVALID_VALUE;
    else
        fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    host_unlock();
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (fd < 0)
        return DDPI_CU_ERROR_OPERATING_SYSTEM;
    *(int *)ret_shareable = fd;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuMemImportFromShareableHandle(ddpi_cu_mem_handle *ret_handle, void *shareable,
                                              unsigned type)
{
    ddpi_cu_result result = host_enter(HOST_cuMemImportFromShareableHandle);
    if (result != DDPI_CU_SUCCESS)
        return result;
    char path[64];
    int fd = (int)(intptr_t)shareable;
    int device = 0;
    uint64_t nonce = 0;
    struct stat stat;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (type != DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !host_memfd_name(path, &device, &nonce) || fstat(fd, &stat) != 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    device = host_ordinal(device);
    if (device < 0)
        return DDPI_CU_ERROR_INVALID_DEVICE;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return DDPI_CU_ERROR_OPERATING_SYSTEM;
    host_lock();
    struct host_physical *physical = add_physical(device, (size_t)stat.st_size, own, nonce);
    if (physical != NULL) {
        physical->handle_types = type;
        *ret_handle = physical->handle;
    }
    host_unlock();
    return physical != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_OUT_OF_MEMORY;
}
