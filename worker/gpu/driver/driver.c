/*
 * driver.c - finds the functions of the CUDA driver, and writes its errors as sentences.
 *
 * Owns nothing but the reference to the library that each table holds. Functions are looked up by
 * name and version (cuGetProcAddress), never by plain symbols, which are the oldest variants.
 * CUDA 12.0 is the first version that can be asked this way.
 */
#include "driver.h"

#include "error.h"
#include "library.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

struct row {
    const char *name;
    int version;
    size_t offset; /* of the member in struct ddpi_cuda */
};

static const struct row rows[] = {
#define ROW(member, name, version, parameters) {#name, version, offsetof(struct ddpi_cuda, member)},
    DDPI_CUDA_FUNCTION_MAP(ROW)
#undef ROW
};

enum { OLDEST_VERSION = 12000 };

/* Advice for a driver that is there and does not start. */
static const struct {
    ddpi_cu_result result;
    const char *advice;
} advices[] = {
    {DDPI_CU_ERROR_NOT_INITIALIZED,
     "a process that was forked from one that used CUDA cannot use it itself; start it with exec"},
    {DDPI_CU_ERROR_STUB_LIBRARY,
     "it is the stub of the toolkit that was found; take its folder out of LD_LIBRARY_PATH"},
    {DDPI_CU_ERROR_NO_DEVICE,
     "see what CUDA_VISIBLE_DEVICES hides and whether this container was given a GPU"},
    {DDPI_CU_ERROR_SYSTEM_DRIVER_MISMATCH,
     "the kernel module is of another release than the library; reload it or restart the machine"},
    {DDPI_CU_ERROR_UNKNOWN,
     "see whether /dev/nvidia-uvm is there; 'nvidia-modprobe -u -c 0' as root makes it"},
};

static ddp_status advise_start(struct ddp_error *err, ddp_status status, ddpi_cu_result result)
{
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].result == result)
            return ddpi_error_advise(err, status, "%s", advices[i].advice);
    return status;
}

/* For sentences, even if the library has nothing else. */
static int read_version(void *library)
{
    ddpi_cu_result (*get_version)(int *) = NULL;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    memcpy(&get_version, &symbol, sizeof symbol);
    int version = 0;
    if (get_version == NULL || get_version(&version) != DDPI_CU_SUCCESS)
        return 0;
    return version;
}

static ddp_status say_too_old(int version, const char *name, int needed, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "the CUDA driver (%s, of CUDA %d.%d) has no function %s of CUDA %d.%d; a "
                          "driver for CUDA %d.%d or later is needed",
                          LIBRARY, version / 1000, version % 1000 / 10, name, needed / 1000,
                          needed % 1000 / 10, OLDEST_VERSION / 1000, OLDEST_VERSION % 1000 / 10);
}

static ddp_status find_functions(struct ddpi_cuda *cuda, struct ddp_error *err)
{
    ddpi_cu_result (*get)(const char *, void **, int, uint64_t, unsigned *) = NULL;
    void *symbol = dlsym(cuda->library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof symbol);
    if (get == NULL)
        return say_too_old(cuda->version, "cuGetProcAddress", OLDEST_VERSION, err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = NULL;
        unsigned found = DDPI_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        ddpi_cu_result result = get(rows[i].name, &function, rows[i].version,
                                    DDPI_CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (result != DDPI_CU_SUCCESS || found != DDPI_CU_GET_PROC_ADDRESS_SUCCESS ||
            function == NULL)
            return say_too_old(cuda->version, rows[i].name, rows[i].version, err);
        memcpy((char *)cuda + rows[i].offset, &function, sizeof function);
    }
    return DDP_OK;
}

static ddp_status driver_start(const struct ddpi_cuda *cuda, struct ddp_error *err)
{
    ddpi_cu_result result = cuda->init(0);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    ddp_status status =
        ddpi_cuda_error(cuda, err, result, "the CUDA driver (%s, of CUDA %d.%d) does not start",
                        LIBRARY, cuda->version / 1000, cuda->version % 1000 / 10);
    return advise_start(err, status, result);
}

ddp_status ddpi_cuda_init(struct ddpi_cuda *cuda, struct ddp_error *err)
{
    struct ddpi_cuda fresh = {.library = ddpi_library_open(LIBRARY)};
    if (fresh.library == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "there is no CUDA driver (%s); install the driver of NVIDIA, or "
                              "start the container with its GPUs",
                              dlerror());
    fresh.version = read_version(fresh.library);
    ddp_status status = find_functions(&fresh, err);
    if (status == DDP_OK)
        status = driver_start(&fresh, err);
    if (status != DDP_OK) {
        ddpi_cuda_finish(&fresh);
        return status;
    }
    *cuda = fresh;
    return DDP_OK;
}

void ddpi_cuda_finish(struct ddpi_cuda *cuda)
{
    if (cuda->library != NULL)
        dlclose(cuda->library);
    *cuda = (struct ddpi_cuda){0};
}

ddp_status ddpi_cuda_alloc_mapped(const struct ddpi_cuda *cuda, size_t size, void **ret_host,
                                  ddpi_cu_deviceptr *ret_device, struct ddp_error *err)
{
    void *host;
    ddpi_cu_result result = cuda->mem_host_alloc(
        &host, size, DDPI_CU_MEMHOSTALLOC_PORTABLE | DDPI_CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(cuda, err, result, "allocate %zu bytes of pinned memory", size);
    result = cuda->mem_host_get_device_pointer(ret_device, host, 0);
    if (result != DDPI_CU_SUCCESS) {
        (void)cuda->mem_free_host(host);
        return ddpi_cuda_error(cuda, err, result, "map pinned memory for the GPU");
    }
    *ret_host = host;
    return DDP_OK;
}

ddp_status ddpi_cuda_error(const struct ddpi_cuda *cuda, struct ddp_error *err,
                           ddpi_cu_result result, const char *format, ...)
{
    char tried[DDP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(tried, sizeof tried, format, args);
    va_end(args);
    const char *name = NULL;
    const char *text = NULL;
    if (cuda->get_error_name(result, &name) != DDPI_CU_SUCCESS || name == NULL)
        name = "unnamed error";
    if (cuda->get_error_string(result, &text) != DDPI_CU_SUCCESS || text == NULL)
        text = "no description";
    return ddpi_error_set(err, DDP_E_CUDA, "%s: %s (%d): %s", tried, name, (int)result, text);
}
