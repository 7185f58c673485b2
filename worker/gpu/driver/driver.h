/*
 * driver.h - the functions of the CUDA driver, found at run time.
 *
 * Nothing links to CUDA: code that needs the driver fills a table of its own with ddpi_cuda_init()
 * and calls through that. A program that uses host memory only never loads it.
 *
 * Contexts are the caller's: nothing here makes one or changes the current one.
 */
#ifndef DDPI_DRIVER_H
#define DDPI_DRIVER_H

#include "abi.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * X(member, name, version, parameters). Each returns a ddpi_cu_result. @version is the CUDA version
 * in which this variant appeared; the driver has older and newer ones under the same name, and is
 * asked for exactly this one. Not formatted by program, which takes the stars here for products.
 */
/* clang-format off */
#define DDPI_CUDA_FUNCTION_MAP(X)                                                                  \
    X(init, cuInit, 2000, (unsigned flags))                                                        \
    X(driver_get_version, cuDriverGetVersion, 2020, (int *ret_version))                            \
    X(get_error_name, cuGetErrorName, 6000, (ddpi_cu_result result, const char **ret_name))        \
    X(get_error_string, cuGetErrorString, 6000, (ddpi_cu_result result, const char **ret_text))    \
    X(device_get_count, cuDeviceGetCount, 2000, (int *ret_count))                                  \
    X(device_get, cuDeviceGet, 2000, (ddpi_cu_device *ret_device, int ordinal))                    \
    X(device_get_name, cuDeviceGetName, 2000, (char *name, int size, ddpi_cu_device device))       \
    X(device_get_uuid, cuDeviceGetUuid, 11040,                                                     \
      (struct ddpi_cu_uuid *ret_uuid, ddpi_cu_device device))                                      \
    X(device_get_pci_bus_id, cuDeviceGetPCIBusId, 4010,                                            \
      (char *id, int size, ddpi_cu_device device))                                                 \
    X(device_get_attribute, cuDeviceGetAttribute, 2000,                                            \
      (int *ret_value, unsigned attribute, ddpi_cu_device device))                                 \
    X(device_can_access_peer, cuDeviceCanAccessPeer, 4000,                                         \
      (int *ret_can, ddpi_cu_device device, ddpi_cu_device peer))                                  \
    X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000,                                   \
      (ddpi_cu_context *ret_context, ddpi_cu_device device))                                       \
    X(device_primary_ctx_release, cuDevicePrimaryCtxRelease, 11000, (ddpi_cu_device device))       \
    X(ctx_get_current, cuCtxGetCurrent, 4000, (ddpi_cu_context *ret_context))                      \
    X(ctx_push_current, cuCtxPushCurrent, 4000, (ddpi_cu_context context))                         \
    X(ctx_pop_current, cuCtxPopCurrent, 4000, (ddpi_cu_context *ret_context))                      \
    X(ctx_get_device, cuCtxGetDevice, 2000, (ddpi_cu_device *ret_device))                          \
    X(ctx_enable_peer_access, cuCtxEnablePeerAccess, 4000, (ddpi_cu_context peer, unsigned flags)) \
    X(pointer_get_attributes, cuPointerGetAttributes, 7000,                                        \
      (unsigned count, unsigned *attributes, void **values, ddpi_cu_deviceptr pointer))            \
    X(mem_get_address_range, cuMemGetAddressRange, 3020,                                           \
      (ddpi_cu_deviceptr *ret_base, size_t *ret_size, ddpi_cu_deviceptr pointer))                  \
    X(mem_alloc, cuMemAlloc, 3020, (ddpi_cu_deviceptr *ret_pointer, size_t size))                  \
    X(mem_free, cuMemFree, 3020, (ddpi_cu_deviceptr pointer))                                      \
    X(mem_get_info, cuMemGetInfo, 3020, (size_t *ret_free, size_t *ret_total))                     \
    X(mem_host_alloc, cuMemHostAlloc, 2020, (void **ret_pointer, size_t size, unsigned flags))     \
    X(mem_free_host, cuMemFreeHost, 2000, (void *pointer))                                         \
    X(mem_host_get_device_pointer, cuMemHostGetDevicePointer, 3020,                                \
      (ddpi_cu_deviceptr *ret_pointer, void *host, unsigned flags))                                \
    X(memcpy_async, cuMemcpyAsync, 4000,                                                           \
      (ddpi_cu_deviceptr dst, ddpi_cu_deviceptr src, size_t size, ddpi_cu_stream stream))          \
    X(memcpy_htod_async, cuMemcpyHtoDAsync, 3020,                                                  \
      (ddpi_cu_deviceptr dst, const void *src, size_t size, ddpi_cu_stream stream))                \
    X(memcpy_dtoh_async, cuMemcpyDtoHAsync, 3020,                                                  \
      (void *dst, ddpi_cu_deviceptr src, size_t size, ddpi_cu_stream stream))                      \
    X(memset_d8_async, cuMemsetD8Async, 3020,                                                      \
      (ddpi_cu_deviceptr dst, unsigned char value, size_t size, ddpi_cu_stream stream))            \
    X(stream_create, cuStreamCreate, 2000, (ddpi_cu_stream *ret_stream, unsigned flags))           \
    X(stream_create_with_priority, cuStreamCreateWithPriority, 5050, \
      (ddpi_cu_stream * ret_stream, unsigned flags, int priority)) \
    X(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, 5050, \
      (int *ret_least, int *ret_greatest)) \
    X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, 10010, \
      (unsigned *mode)) \
    X(stream_destroy, cuStreamDestroy, 4000, (ddpi_cu_stream stream))                              \
    X(stream_query, cuStreamQuery, 2000, (ddpi_cu_stream stream))                                  \
    X(stream_synchronize, cuStreamSynchronize, 2000, (ddpi_cu_stream stream))                      \
    X(stream_get_ctx, cuStreamGetCtx, 9020,                                                        \
      (ddpi_cu_stream stream, ddpi_cu_context *ret_context))                                       \
    X(stream_is_capturing, cuStreamIsCapturing, 10000,                                             \
      (ddpi_cu_stream stream, unsigned *ret_status))                                               \
    X(stream_wait_value32, cuStreamWaitValue32, 11070,                                             \
      (ddpi_cu_stream stream, ddpi_cu_deviceptr address, uint32_t value, unsigned flags))          \
    X(stream_write_value32, cuStreamWriteValue32, 11070,                                           \
      (ddpi_cu_stream stream, ddpi_cu_deviceptr address, uint32_t value, unsigned flags))          \
    X(module_load_data, cuModuleLoadData, 2000, (ddpi_cu_module *ret_module, const void *image))   \
    X(module_unload, cuModuleUnload, 2000, (ddpi_cu_module module))                                \
    X(module_get_function, cuModuleGetFunction, 2000,                                              \
      (ddpi_cu_function *ret_function, ddpi_cu_module module, const char *name))                   \
    X(launch_kernel, cuLaunchKernel, 4000,                                                         \
      (ddpi_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       ddpi_cu_stream stream, void **parameters, void **extra))                                    \
    X(ipc_get_mem_handle, cuIpcGetMemHandle, 4010,                                                 \
      (struct ddpi_cu_ipc_handle *ret_handle, ddpi_cu_deviceptr pointer))                          \
    X(ipc_open_mem_handle, cuIpcOpenMemHandle, 11000,                                              \
      (ddpi_cu_deviceptr *ret_pointer, struct ddpi_cu_ipc_handle handle, unsigned flags))          \
    X(ipc_close_mem_handle, cuIpcCloseMemHandle, 4010, (ddpi_cu_deviceptr pointer))                \
    X(mem_get_allocation_granularity, cuMemGetAllocationGranularity, 10020,                        \
      (size_t *ret_granularity, const struct ddpi_cu_mem_prop *prop, unsigned option))             \
    X(mem_create, cuMemCreate, 10020,                                                              \
      (ddpi_cu_mem_handle *ret_handle, size_t size, const struct ddpi_cu_mem_prop *prop,           \
       unsigned long long flags))                                                                  \
    X(mem_release, cuMemRelease, 10020, (ddpi_cu_mem_handle handle))                               \
    X(mem_address_reserve, cuMemAddressReserve, 10020,                                             \
      (ddpi_cu_deviceptr *ret_pointer, size_t size, size_t alignment, ddpi_cu_deviceptr wanted,    \
       unsigned long long flags))                                                                  \
    X(mem_address_free, cuMemAddressFree, 10020, (ddpi_cu_deviceptr pointer, size_t size))         \
    X(mem_map, cuMemMap, 10020,                                                                    \
      (ddpi_cu_deviceptr pointer, size_t size, size_t offset, ddpi_cu_mem_handle handle,           \
       unsigned long long flags))                                                                  \
    X(mem_unmap, cuMemUnmap, 10020, (ddpi_cu_deviceptr pointer, size_t size))                      \
    X(mem_set_access, cuMemSetAccess, 10020,                                                       \
      (ddpi_cu_deviceptr pointer, size_t size, const struct ddpi_cu_mem_access *access,            \
       size_t count))                                                                              \
    X(mem_retain_allocation_handle, cuMemRetainAllocationHandle, 11000,                            \
      (ddpi_cu_mem_handle *ret_handle, void *pointer))                                             \
    X(mem_export_to_shareable_handle, cuMemExportToShareableHandle, 10020,                         \
      (void *ret_shareable, ddpi_cu_mem_handle handle, unsigned type, unsigned long long flags))   \
    X(mem_import_from_shareable_handle, cuMemImportFromShareableHandle, 10020,                     \
      (ddpi_cu_mem_handle *ret_handle, void *shareable, unsigned type))
/* clang-format on */

struct ddpi_cuda {
    void *library; /* one reference to libcuda.so.1 */
    int version;   /* of the driver: 1000 * major + 10 * minor */
#define DDPI_CUDA_MEMBER(member, name, version, parameters) ddpi_cu_result(*member) parameters;
    DDPI_CUDA_FUNCTION_MAP(DDPI_CUDA_MEMBER)
#undef DDPI_CUDA_MEMBER
};

/*
 * Load the driver, find every function and initialise it. Any thread; may take a second if the
 * driver starts its devices. Several threads may use @cuda at once; it may be copied.
 *
 * DDP_E_UNSUPPORTED: there is no driver, or it is too old. DDP_E_CUDA: it does not start, for
 * example because it finds no device.
 */
ddp_status ddpi_cuda_init(struct ddpi_cuda *cuda, struct ddp_error *err) DDP_MUST_CHECK;

/* Drop the reference; a zeroed @cuda is allowed. The code of the driver stays in the process, as
 * its threads may still run. */
void ddpi_cuda_finish(struct ddpi_cuda *cuda);

/* @size bytes of pinned memory that the GPU can use, at the address *@ret_device that it has there;
 * mem_free_host() frees it. Needs the context current. DDP_E_CUDA: the driver refuses. */
ddp_status ddpi_cuda_alloc_mapped(const struct ddpi_cuda *cuda, size_t size, void **ret_host,
                                  ddpi_cu_deviceptr *ret_device,
                                  struct ddp_error *err) DDP_MUST_CHECK;

/* Set @err to what was tried and the driver's answer ("... : CUDA_ERROR_ILLEGAL_ADDRESS (700): an
 * illegal memory access was encountered"); returns DDP_E_CUDA. */
ddp_status ddpi_cuda_error(const struct ddpi_cuda *cuda, struct ddp_error *err,
                           ddpi_cu_result result, const char *format, ...) DDP_PRINTF(4, 5);

#endif
