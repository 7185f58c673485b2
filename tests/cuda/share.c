/*
 * share.c - memory of one process in another (CUDA IPC): a handle says which process has
 * which memfd, and opening it goes through /proc. So it works between processes that were not
 * forked from each other, and ends with the process that has the memory.
 */
#include "host.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What is in the bytes of a handle. */
struct handle {
    uint64_t magic;
    uint64_t nonce; /* tells the memfd from a later one under the same number */
    uint64_t size;
    uint64_t base;
    int32_t pid;
    int32_t fd;
    int32_t physical_device;
};

static const uint64_t MAGIC = 0x6470636569707468ULL;
_Static_assert(sizeof(struct handle) <= sizeof(struct ddpi_cu_ipc_handle), "handles are too small");

ddpi_cu_result cuIpcGetMemHandle(struct ddpi_cu_ipc_handle *ret_handle, ddpi_cu_deviceptr pointer)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuIpcGetMemHandle, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_memory *memory = host_memory_find(pointer);
    if (memory == NULL || memory->kind != HOST_MEMORY_DEVICE) {
        result = DDPI_CU_ERROR_INVALID_VALUE;
    } else {
        const struct handle inner = {.magic = MAGIC,
                                     .nonce = memory->nonce,
                                     .size = memory->size,
                                     .base = memory->base,
                                     .pid = getpid(),
                                     .fd = memory->fd,
                                     .physical_device = host_settings()->physical[memory->device]};
        memset(ret_handle, 0, sizeof *ret_handle);
        memcpy(ret_handle, &inner, sizeof inner);
    }
    host_unlock();
    return result;
}

/* The memfd that @inner means, as a file of this process; -1 when it is no more. */
static int open_file(const struct handle *inner)
{
    char path[64];
    int device = 0;
    uint64_t nonce = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", inner->pid, inner->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    /* Looked at through our own descriptor, which cannot become another file meanwhile. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!host_memfd_name(path, &device, &nonce) || nonce != inner->nonce) {
        close(fd);
        return -1;
    }
    return fd;
}

static struct host_memory *map_shared(struct host_context *context, const struct handle *inner,
                                      int fd)
{
    /* A device that this process does not see is said to be the one that reaches it. */
    int device = host_ordinal(inner->physical_device);
    struct host_memory *memory = host_memory_add(
        HOST_MEMORY_SHARED, context, device >= 0 ? device : context->device, inner->size);
    if (memory == NULL) {
        close(fd);
        return NULL;
    }
    memory->fd = fd;
    memory->nonce = inner->nonce;
    memory->owner_pid = inner->pid;
    memory->owner_base = inner->base;
    memory->access[context->device] = true;
    memory->bytes = host_map_new(inner->size, fd);
    if (memory->bytes == NULL) {
        host_memory_remove(memory);
        return NULL;
    }
    memory->base = host_tag(memory->bytes);
    return memory;
}

/* Under the lock. */
static ddpi_cu_result open_handle(struct host_context *context, const struct handle *inner,
                                  ddpi_cu_deviceptr *ret_pointer)
{
    struct host_memory *memory = host_memory_find_shared(context, inner->nonce);
    if (memory == NULL) {
        if (host_memory_overlaps(context, inner->pid, inner->base, inner->size))
            return DDPI_CU_ERROR_ALREADY_MAPPED;
        int fd = open_file(inner);
        if (fd < 0)
            return DDPI_CU_ERROR_MAP_FAILED;
        memory = map_shared(context, inner, fd);
        if (memory == NULL)
            return DDPI_CU_ERROR_OUT_OF_MEMORY;
    }
    memory->opened++;
    *ret_pointer = memory->base;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuIpcOpenMemHandle(ddpi_cu_deviceptr *ret_pointer, struct ddpi_cu_ipc_handle handle,
                                  unsigned flags)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuIpcOpenMemHandle, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    struct handle inner;
    memcpy(&inner, &handle, sizeof inner);
    if (inner.magic != MAGIC || flags != DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        inner.physical_device < 0 || inner.physical_device >= HOST_DEVICES_MAX)
        return DDPI_CU_ERROR_INVALID_VALUE;
    if (inner.pid == getpid())
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    const struct host_settings *set = host_settings();
    int own = set->physical[context->device];
    if (inner.physical_device != own && !set->peers[own][inner.physical_device])
        return DDPI_CU_ERROR_PEER_ACCESS_UNSUPPORTED;
    host_lock();
    result = open_handle(context, &inner, ret_pointer);
    host_unlock();
    return result;
}

ddpi_cu_result cuIpcCloseMemHandle(ddpi_cu_deviceptr pointer)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuIpcCloseMemHandle, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct host_memory *memory = host_memory_find(pointer);
    if (memory == NULL || memory->kind != HOST_MEMORY_SHARED || memory->base != pointer) {
        result = DDPI_CU_ERROR_INVALID_VALUE;
    } else if (memory->opened > 1) {
        memory->opened--;
    } else {
        host_context_drain(memory->context, host_call_name(HOST_cuIpcCloseMemHandle));
        memory = host_memory_find(pointer);
        if (memory != NULL)
            host_memory_remove(memory);
    }
    host_unlock();
    return result;
}
