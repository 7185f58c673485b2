/*
 * pointer.c - the functions that say what a pointer is, and how much memory there is.
 */
#include "host.h"

#include <string.h>

ddpi_cu_result cuMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemGetInfo, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    *ret_total = host_settings()->memory_bytes;
    *ret_free = *ret_total - context->used_bytes;
    host_unlock();
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuMemHostGetDevicePointer(ddpi_cu_deviceptr *ret_pointer, void *host, unsigned flags)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemHostGetDevicePointer, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_memory *memory = host_memory_find((uintptr_t)host);
    if (flags != 0 || memory == NULL || memory->kind != HOST_MEMORY_PINNED)
        result = DDPI_CU_ERROR_INVALID_VALUE;
    else
        *ret_pointer = (uintptr_t)host;
    host_unlock();
    return result;
}

ddpi_cu_result cuMemGetAddressRange(ddpi_cu_deviceptr *ret_base, size_t *ret_size,
                                    ddpi_cu_deviceptr pointer)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemGetAddressRange, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_memory *memory = host_memory_find(pointer);
    if (memory == NULL) {
        result = DDPI_CU_ERROR_INVALID_VALUE;
    } else {
        if (ret_base != NULL)
            *ret_base = memory->base;
        if (ret_size != NULL)
            *ret_size = memory->size;
    }
    host_unlock();
    return result;
}

/* The value of @attribute as the driver stores it, and how many bytes of it; 0: no such attribute.
 * Without a memory it is what the driver says of pointers that it does not know. */
static size_t attribute_value(unsigned attribute, const struct host_memory *memory,
                              ddpi_cu_deviceptr pointer, uint64_t *ret_value)
{
    bool known = memory != NULL;
    bool on_device = known && memory->kind != HOST_MEMORY_PINNED;
    bool on_host = known && !host_is_tagged(memory->base);
    bool virtual = known && memory->kind == HOST_MEMORY_VIRTUAL;
    *ret_value = 0;
    switch (attribute) {
    case DDPI_CU_POINTER_ATTRIBUTE_CONTEXT:
        *ret_value = known && !virtual ? (uintptr_t)memory->context : 0;
        return sizeof(void *);
    case DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *ret_value = on_device ? DDPI_CU_MEMORYTYPE_DEVICE : known ? DDPI_CU_MEMORYTYPE_HOST : 0;
        return sizeof(unsigned);
    case DDPI_CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *ret_value = known ? pointer : 0;
        return sizeof(ddpi_cu_deviceptr);
    case DDPI_CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *ret_value = on_host ? pointer : 0;
        return sizeof(void *);
    case DDPI_CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *ret_value = known && !virtual ? memory->id : 0;
        return sizeof(uint64_t);
    case DDPI_CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *ret_value = virtual ? host_physical_id(memory->physical) : known ? memory->id : 0;
        return sizeof(uint64_t);
    case DDPI_CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *ret_value = known && memory->kind == HOST_MEMORY_MANAGED;
        return sizeof(unsigned);
    case DDPI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *ret_value = (uint64_t)(int64_t)(known ? memory->device : -2);
        return sizeof(int);
    case DDPI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *ret_value = known && memory->kind == HOST_MEMORY_DEVICE;
        return sizeof(unsigned);
    case DDPI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *ret_value = known ? memory->base : 0;
        return sizeof(void *);
    case DDPI_CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *ret_value = known ? memory->size : 0;
        return sizeof(size_t);
    case DDPI_CU_POINTER_ATTRIBUTE_MAPPED:
        *ret_value = known;
        return sizeof(unsigned);
    case DDPI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *ret_value = virtual ? host_physical_handle_types(memory->physical) : 0;
        return sizeof(uint64_t);
    default:
        return 0;
    }
}

ddpi_cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values,
                                      ddpi_cu_deviceptr pointer)
{
    ddpi_cu_result result = host_enter(HOST_cuPointerGetAttributes);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_memory *memory = host_memory_find(pointer);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = 0;
        size_t size = attribute_value(attributes[i], memory, pointer, &value);
        if (size == 0)
            result = DDPI_CU_ERROR_INVALID_VALUE;
        memcpy(values[i], &value, size); /* little endian, as every host of a GPU */
    }
    host_unlock();
    return result;
}
