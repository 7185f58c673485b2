/*
 * perf_coll_memory.c - buffers in host memory or on a GPU. Owns a reference to the device's
 * context, and the stream.
 */
#include "perf_coll_memory.h"

#include "clock.h"
#include "error.h"
#include "mem.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, PAGE = 4096 };

/* ---- a device ---- */

static bool cuda_worked(struct coll_memory *memory, ddpi_cu_result result, const char *what,
                        struct ddp_error *err)
{
    return result == DDPI_CU_SUCCESS ||
           ddpi_cuda_error(&memory->driver, err, result, "%s", what) == DDP_OK;
}

int coll_devices(void)
{
    struct ddpi_cuda driver;
    int count = 0;
    if (ddpi_cuda_init(&driver, NULL) != DDP_OK)
        return 0;
    if (driver.device_get_count(&count) != DDPI_CU_SUCCESS)
        count = 0;
    ddpi_cuda_finish(&driver);
    return count;
}

static bool describe_device(struct coll_memory *memory, struct ddp_error *err)
{
    struct ddpi_cu_uuid uuid = {0};
    const struct ddpi_cuda *driver = &memory->driver;
    bool good =
        cuda_worked(memory,
                    driver->device_get_name(memory->name, sizeof memory->name, memory->device),
                    "ask for the device's name", err) &&
        cuda_worked(memory,
                    driver->device_get_pci_bus_id(memory->bus, sizeof memory->bus, memory->device),
                    "ask for the device's place", err) &&
        cuda_worked(memory, driver->device_get_uuid(&uuid, memory->device),
                    "ask which device it is", err);
    memcpy(memory->uuid, uuid.bytes, sizeof memory->uuid);
    return good;
}

static bool open_device(struct coll_memory *memory, uint32_t local, struct ddp_error *err)
{
    int count = 0;
    const struct ddpi_cuda *driver = &memory->driver;
    if (ddpi_cuda_init(&memory->driver, err) != DDP_OK)
        return false;
    if (!cuda_worked(memory, driver->device_get_count(&count), "count the devices", err))
        return false;
    if (count == 0)
        return !ddpi_error_set(err, DDP_E_UNSUPPORTED, "the driver sees no device");
    memory->device = (int)(local % (uint32_t)count);
    if (!cuda_worked(memory, driver->device_primary_ctx_retain(&memory->context, memory->device),
                     "make the device's context", err))
        return false;
    if (!cuda_worked(memory, driver->ctx_push_current(memory->context), "use the context", err)) {
        (void)driver->device_primary_ctx_release(memory->device);
        memory->context = NULL;
        return false;
    }
    return cuda_worked(memory, driver->stream_create(&memory->stream, DDPI_CU_STREAM_NON_BLOCKING),
                       "make a stream", err) &&
           describe_device(memory, err);
}

bool coll_memory_open(struct coll_memory *memory, bool cuda, uint32_t local, struct ddp_error *err)
{
    *memory = (struct coll_memory){
        .cuda = cuda, .chunk = ddpi_calloc(COLL_CHUNK, 1), .check = ddpi_calloc(COLL_CHUNK, 1)};
    bool good = memory->chunk != NULL && memory->check != NULL;
    if (!good)
        ddpi_error_nomem(err, COLL_CHUNK);
    good = good && (!cuda || open_device(memory, local, err));
    if (!good)
        coll_memory_close(memory);
    return good;
}

void coll_memory_close(struct coll_memory *memory)
{
    const struct ddpi_cuda *driver = &memory->driver;
    if (memory->stream != NULL)
        (void)driver->stream_destroy(memory->stream);
    if (memory->context != NULL) {
        (void)driver->ctx_pop_current(NULL);
        (void)driver->device_primary_ctx_release(memory->device);
    }
    ddpi_cuda_finish(&memory->driver);
    ddpi_free(memory->chunk);
    ddpi_free(memory->check);
    *memory = (struct coll_memory){0};
}

/* ---- buffers ---- */

bool coll_memory_alloc(struct coll_memory *memory, size_t len, uint8_t **ret, struct ddp_error *err)
{
    ddpi_cu_deviceptr address = 0;
    size_t room = (len / PAGE + 1) * PAGE;
    if (!memory->cuda) {
        *ret = aligned_alloc(PAGE, room);
        return *ret != NULL || ddpi_error_nomem(err, room) == DDP_OK;
    }
    if (!cuda_worked(memory, memory->driver.mem_alloc(&address, room),
                     "allocate memory of the device", err))
        return false;
    *ret = (void *)(uintptr_t)address;
    return true;
}

void coll_memory_free(struct coll_memory *memory, uint8_t *buffer)
{
    if (!memory->cuda)
        free(buffer);
    else if (buffer != NULL)
        (void)memory->driver.mem_free((uintptr_t)buffer);
}

bool coll_memory_sync(struct coll_memory *memory, struct ddp_error *err)
{
    return !memory->cuda || cuda_worked(memory, memory->driver.stream_synchronize(memory->stream),
                                        "wait for the stream", err);
}

void *coll_memory_stream(const struct coll_memory *memory)
{
    return memory->cuda ? memory->stream : NULL;
}

bool coll_memory_poison(struct coll_memory *memory, uint8_t *buffer, size_t len,
                        struct ddp_error *err)
{
    if (len == 0)
        return true;
    if (memory->cuda)
        return cuda_worked(
            memory, memory->driver.memset_d8_async((uintptr_t)buffer, POISON, len, memory->stream),
            "set memory of the device", err);
    memset(buffer, POISON, len);
    return true;
}

/* The chunk may be used again when this returns. */
static bool upload(struct coll_memory *memory, uint8_t *to, size_t len, struct ddp_error *err)
{
    if (memory->cuda)
        return cuda_worked(memory,
                           memory->driver.memcpy_htod_async((uintptr_t)to, memory->chunk, len,
                                                            memory->stream),
                           "copy to the device", err) &&
               coll_memory_sync(memory, err);
    memcpy(to, memory->chunk, len);
    return true;
}

static bool download(struct coll_memory *memory, const uint8_t *from, size_t len,
                     struct ddp_error *err)
{
    if (memory->cuda)
        return cuda_worked(memory,
                           memory->driver.memcpy_dtoh_async(memory->check, (uintptr_t)from, len,
                                                            memory->stream),
                           "copy from the device", err) &&
               coll_memory_sync(memory, err);
    memcpy(memory->check, from, len);
    return true;
}

bool coll_memory_fill(struct coll_memory *memory, const struct coll_pattern *pattern,
                      uint64_t first, size_t count, uint8_t *buffer, struct ddp_error *err)
{
    size_t size = ddp_dtype_size(pattern->dtype), most = COLL_CHUNK / size;
    for (size_t at = 0; at < count; at += most) {
        size_t len = count - at < most ? count - at : most;
        coll_fill(pattern, first + at, len, memory->chunk);
        if (!upload(memory, buffer + at * size, len * size, err))
            return false;
    }
    return true;
}

bool coll_memory_check(struct coll_memory *memory, const struct coll_pattern *pattern,
                       uint64_t first, size_t count, const uint8_t *buffer, uint64_t *wrong,
                       struct ddp_error *err)
{
    size_t size = ddp_dtype_size(pattern->dtype), most = COLL_CHUNK / size;
    for (size_t at = 0; at < count; at += most) {
        size_t len = count - at < most ? count - at : most;
        if (!download(memory, buffer + at * size, len * size, err))
            return false;
        coll_fill(pattern, first + at, len, memory->chunk);
        *wrong += coll_differ(pattern->dtype, memory->chunk, memory->check, len);
    }
    return true;
}

/* ---- the copy that serves as the floor ---- */

static bool copy_within(struct coll_memory *memory, uint8_t *to, const uint8_t *from, size_t len,
                        struct ddp_error *err)
{
    if (memory->cuda)
        return cuda_worked(
            memory,
            memory->driver.memcpy_async((uintptr_t)to, (uintptr_t)from, len, memory->stream),
            "copy within the device", err);
    memcpy(to, from, len);
    return true;
}

bool coll_memory_time_copy(struct coll_memory *memory, uint8_t *to, const uint8_t *from, size_t len,
                           uint32_t iters, double *ret_us, struct ddp_error *err)
{
    uint64_t began_us = 0;
    for (uint32_t i = 0; i <= iters; i++) { /* the first copy warms up */
        if (!copy_within(memory, to, from, len, err) ||
            ((i == 0 || i == iters) && !coll_memory_sync(memory, err)))
            return false;
        if (i == 0)
            began_us = ddpi_monotonic_us();
    }
    *ret_us = (double)(ddpi_monotonic_us() - began_us) / iters;
    return true;
}
