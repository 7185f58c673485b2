/*
 * device.h - the first device, for programs that try out or time what runs on one: a loaded table,
 * its primary context as the current one, and a stream. Any failure ends the program with the
 * driver's own name for it.
 */
#ifndef TESTS_GPU_DEVICE_H
#define TESTS_GPU_DEVICE_H

#include "driver.h"

struct device {
    struct ddpi_cuda cuda;
    ddpi_cu_context context;
    ddpi_cu_stream stream;
    char name[128];
};

/* Ends the program with 77, which means "skipped", where there is no driver or no device. */
void device_open(struct device *device);
void device_close(struct device *device);

ddpi_cu_deviceptr device_alloc(const struct device *device, size_t size);
void device_free(const struct device *device, ddpi_cu_deviceptr pointer);

/* Return when it is done. */
void device_upload(const struct device *device, ddpi_cu_deviceptr dst, const void *src,
                   size_t size);
void device_download(const struct device *device, void *dst, ddpi_cu_deviceptr src, size_t size);
void device_wait(const struct device *device);

#endif
