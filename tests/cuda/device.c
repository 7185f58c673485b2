/*
 * device.c - devices, their primary contexts, which context is current, and the words for results.
 * Owns the lock and the contexts, which are never freed: a handle stays valid, the context may not.
 */
#include "host.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STACK_MAX = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct host_context contexts[HOST_DEVICES_MAX];

static _Thread_local struct host_context *stack[STACK_MAX];
static _Thread_local int depth;

static const struct {
    ddpi_cu_result result;
    const char *name;
    const char *text;
} words[] = {
    {DDPI_CU_SUCCESS, "CUDA_SUCCESS", "no error"},
#define WORDS(name, text)                   \
    {                                       \
        DDPI_CU_##name, "CUDA_" #name, text \
    }
    WORDS(ERROR_INVALID_VALUE, "invalid argument"),
    WORDS(ERROR_OUT_OF_MEMORY, "out of memory"),
    WORDS(ERROR_NOT_INITIALIZED, "initialization error"),
    WORDS(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    WORDS(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WORDS(ERROR_INVALID_CONTEXT, "invalid device context"),
    WORDS(ERROR_MAP_FAILED, "mapping of buffer object failed"),
    WORDS(ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    WORDS(ERROR_INVALID_HANDLE, "invalid resource handle"),
    WORDS(ERROR_NOT_FOUND, "named symbol not found"),
    WORDS(ERROR_NOT_READY, "device not ready"),
    WORDS(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WORDS(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    WORDS(ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    WORDS(ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    WORDS(ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    WORDS(ERROR_ALREADY_MAPPED, "resource already mapped"),
    WORDS(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    WORDS(ERROR_NOT_PERMITTED, "operation not permitted"),
    WORDS(ERROR_NOT_SUPPORTED, "operation not supported"),
    WORDS(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
#undef WORDS
};

void host_lock(void)
{
    pthread_mutex_lock(&lock);
}

void host_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void host_changed(void)
{
    pthread_cond_broadcast(&changed);
}

void host_wait(unsigned timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&changed, &lock, &until);
}

struct host_context *host_device_context(int ordinal)
{
    if (ordinal < 0 || ordinal >= host_settings()->devices)
        return NULL;
    return &contexts[ordinal];
}

struct host_context *host_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

ddpi_cu_result cuGetErrorName(ddpi_cu_result result, const char **ret_name)
{
    *ret_name = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && *ret_name == NULL; i++)
        if (words[i].result == result)
            *ret_name = words[i].name;
    return *ret_name != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_INVALID_VALUE;
}

ddpi_cu_result cuGetErrorString(ddpi_cu_result result, const char **ret_text)
{
    *ret_text = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && *ret_text == NULL; i++)
        if (words[i].result == result)
            *ret_text = words[i].text;
    return *ret_text != NULL ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_INVALID_VALUE;
}

ddpi_cu_result cuDeviceGetCount(int *ret_count)
{
    ddpi_cu_result result = host_enter(HOST_cuDeviceGetCount);
    if (result == DDPI_CU_SUCCESS)
        *ret_count = host_settings()->devices;
    return result;
}

static ddpi_cu_result enter_device(enum host_call call, ddpi_cu_device device)
{
    ddpi_cu_result result = host_enter(call);
    if (result == DDPI_CU_SUCCESS && host_device_context(device) == NULL)
        return DDPI_CU_ERROR_INVALID_DEVICE;
    return result;
}

ddpi_cu_result cuDeviceGet(ddpi_cu_device *ret_device, int ordinal)
{
    ddpi_cu_result result = enter_device(HOST_cuDeviceGet, ordinal);
    if (result == DDPI_CU_SUCCESS)
        *ret_device = ordinal;
    return result;
}

ddpi_cu_result cuDeviceGetName(char *name, int size, ddpi_cu_device device)
{
    ddpi_cu_result result = enter_device(HOST_cuDeviceGetName, device);
    if (result == DDPI_CU_SUCCESS)
        snprintf(name, (size_t)size, "Host CUDA device");
    return result;
}

ddpi_cu_result cuDeviceGetUuid(struct ddpi_cu_uuid *ret_uuid, ddpi_cu_device device)
{
    ddpi_cu_result result = enter_device(HOST_cuDeviceGetUuid, device);
    if (result != DDPI_CU_SUCCESS)
        return result;
    memcpy(ret_uuid->bytes, "ddprun host gpu", sizeof ret_uuid->bytes);
    ret_uuid->bytes[15] = (char)host_settings()->physical[device];
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuDeviceGetPCIBusId(char *id, int size, ddpi_cu_device device)
{
    ddpi_cu_result result = enter_device(HOST_cuDeviceGetPCIBusId, device);
    if (result == DDPI_CU_SUCCESS)
        snprintf(id, (size_t)size, "0000:%02X:00.0", host_settings()->physical[device] + 1);
    return result;
}

ddpi_cu_result cuDeviceGetAttribute(int *ret_value, unsigned attribute, ddpi_cu_device device)
{
    static const struct {
        unsigned attribute;
        int value;
    } values[] = {
        {DDPI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
        {DDPI_CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
        {DDPI_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {DDPI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {DDPI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {DDPI_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {DDPI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    };
    ddpi_cu_result result = enter_device(HOST_cuDeviceGetAttribute, device);
    if (result != DDPI_CU_SUCCESS)
        return result;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i].attribute == attribute) {
            *ret_value = values[i].value;
            return DDPI_CU_SUCCESS;
        }
    }
    return DDPI_CU_ERROR_INVALID_VALUE;
}

ddpi_cu_result cuDeviceCanAccessPeer(int *ret_can, ddpi_cu_device device, ddpi_cu_device peer)
{
    ddpi_cu_result result = enter_device(HOST_cuDeviceCanAccessPeer, device);
    if (result == DDPI_CU_SUCCESS && host_device_context(peer) == NULL)
        result = DDPI_CU_ERROR_INVALID_DEVICE;
    if (result == DDPI_CU_SUCCESS)
        *ret_can = device != peer && host_can_access(device, peer);
    return result;
}

ddpi_cu_result cuDevicePrimaryCtxRetain(ddpi_cu_context *ret_context, ddpi_cu_device device)
{
    ddpi_cu_result result = host_enter(HOST_cuDevicePrimaryCtxRetain);
    if (result != DDPI_CU_SUCCESS)
        return result;
    struct host_context *context = host_device_context(device);
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_DEVICE;
    host_lock();
    if (context->retained == 0) {
        *context = (struct host_context){.device = device};
        ddpi_list_init(&context->streams);
    }
    context->retained++;
    host_unlock();
    *ret_context = (ddpi_cu_context)(void *)context;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuDevicePrimaryCtxRelease(ddpi_cu_device device)
{
    ddpi_cu_result result = host_enter(HOST_cuDevicePrimaryCtxRelease);
    if (result != DDPI_CU_SUCCESS)
        return result;
    struct host_context *context = host_device_context(device);
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_DEVICE;
    host_lock();
    if (context->retained == 0) {
        result = DDPI_CU_ERROR_INVALID_CONTEXT;
    } else if (context->retained == 1) {
        context->stopped = true;
        host_streams_end(context);
        host_memory_remove_all(context);
        context->retained = 0;
    } else {
        context->retained--;
    }
    host_unlock();
    return result;
}

DDP_API ddpi_cu_result cuCtxGetCurrent(ddpi_cu_context *ret_context)
{
    ddpi_cu_result result = host_enter(HOST_cuCtxGetCurrent);
    if (result == DDPI_CU_SUCCESS)
        *ret_context = (ddpi_cu_context)(void *)host_current();
    return result;
}

ddpi_cu_result cuCtxPushCurrent(ddpi_cu_context handle)
{
    ddpi_cu_result result = host_enter(HOST_cuCtxPushCurrent);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (handle == NULL || depth == STACK_MAX)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    stack[depth++] = (struct host_context *)(void *)handle;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuCtxPopCurrent(ddpi_cu_context *ret_context)
{
    ddpi_cu_result result = host_enter(HOST_cuCtxPopCurrent);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (depth == 0)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    struct host_context *context = stack[--depth];
    if (ret_context != NULL)
        *ret_context = (ddpi_cu_context)(void *)context;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuCtxGetDevice(ddpi_cu_device *ret_device)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuCtxGetDevice, &context);
    if (result == DDPI_CU_SUCCESS)
        *ret_device = context->device;
    return result;
}

ddpi_cu_result cuCtxEnablePeerAccess(ddpi_cu_context peer_handle, unsigned flags)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuCtxEnablePeerAccess, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    const struct host_context *peer = (const struct host_context *)(const void *)peer_handle;
    if (flags != 0)
        return DDPI_CU_ERROR_INVALID_VALUE;
    if (peer == NULL || peer == context)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    if (!host_can_access(context->device, peer->device))
        return DDPI_CU_ERROR_PEER_ACCESS_UNSUPPORTED;
    host_lock();
    if (context->peers[peer->device])
        result = DDPI_CU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers[peer->device] = true;
    host_unlock();
    return result;
}
