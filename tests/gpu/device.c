/*
 * device.c - see device.h.
 */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>

enum { SKIPPED = 77 };

static void must(const struct device *device, ddpi_cu_result result, const char *what)
{
    struct ddp_error err = {0};
    if (result == DDPI_CU_SUCCESS)
        return;
    ddpi_cuda_error(&device->cuda, &err, result, "%s", what);
    fprintf(stderr, "%s\n", err.msg);
    exit(EXIT_FAILURE);
}

void device_open(struct device *device)
{
    struct ddp_error err = {0};
    *device = (struct device){0};
    if (ddpi_cuda_init(&device->cuda, &err) != DDP_OK) {
        fprintf(stderr, "skipped: %s\n", err.msg);
        exit(SKIPPED);
    }
    const struct ddpi_cuda *cuda = &device->cuda;
    must(device, cuda->device_primary_ctx_retain(&device->context, 0), "no context");
    must(device, cuda->ctx_push_current(device->context), "no current context");
    must(device, cuda->stream_create(&device->stream, DDPI_CU_STREAM_NON_BLOCKING), "no stream");
    must(device, cuda->device_get_name(device->name, sizeof device->name, 0), "no name");
}

void device_close(struct device *device)
{
    const struct ddpi_cuda *cuda = &device->cuda;
    must(device, cuda->stream_destroy(device->stream), "the stream stays");
    must(device, cuda->ctx_pop_current(&device->context), "the context stays current");
    must(device, cuda->device_primary_ctx_release(0), "the context stays");
    ddpi_cuda_finish(&device->cuda);
}

ddpi_cu_deviceptr device_alloc(const struct device *device, size_t size)
{
    ddpi_cu_deviceptr pointer = 0;
    must(device, device->cuda.mem_alloc(&pointer, size), "no memory");
    return pointer;
}

void device_free(const struct device *device, ddpi_cu_deviceptr pointer)
{
    must(device, device->cuda.mem_free(pointer), "the memory stays");
}

void device_upload(const struct device *device, ddpi_cu_deviceptr dst, const void *src, size_t size)
{
    must(device, device->cuda.memcpy_htod_async(dst, src, size, device->stream), "no upload");
    device_wait(device);
}

void device_download(const struct device *device, void *dst, ddpi_cu_deviceptr src, size_t size)
{
    must(device, device->cuda.memcpy_dtoh_async(dst, src, size, device->stream), "no download");
    device_wait(device);
}

void device_wait(const struct device *device)
{
    must(device, device->cuda.stream_synchronize(device->stream), "the stream failed");
}
