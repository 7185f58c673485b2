/*
 * runtime.cc - see cuda_runtime.h: each function of the runtime by those of the driver. Events, for
 * which the library has no use and the driver of tests/cuda none either, are words of pinned memory
 * that streams write and wait for.
 */
#include "cuda_runtime.h"

extern "C" {
#include "driver.h"
}

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <utility>

struct host_event {
    uint32_t *word;
    ddpi_cu_deviceptr address; /* of the word, for streams */
    uint32_t recorded;         /* how often; the word follows */
};

namespace
{

struct driver {
    ddpi_cuda cuda;
    ddp_status status;
    ddpi_cu_result (*launch_host_func)(ddpi_cu_stream, void (*)(void *), void *);
    void *(*memory_reach)(ddpi_cu_deviceptr, size_t, int);
};

struct launch {
    std::function<void(int)> kernel;
    int device;
};

thread_local int current_device;
thread_local cudaError_t last_error = cudaSuccess;

driver load_driver()
{
    driver driver{};
    driver.status = ddpi_cuda_init(&driver.cuda, nullptr);
    if (driver.status != DDP_OK)
        return driver;
    void *const library = driver.cuda.library;
    driver.launch_host_func =
        reinterpret_cast<decltype(driver.launch_host_func)>(dlsym(library, "cuLaunchHostFunc"));
    driver.memory_reach =
        reinterpret_cast<decltype(driver.memory_reach)>(dlsym(library, "host_memory_reach"));
    if (driver.memory_reach == nullptr) {
        fputs("runtime: this is a real driver; take the program that nvcc made\n", stderr);
        abort();
    }
    return driver;
}

const driver &the_driver()
{
    static const driver driver = load_driver();
    return driver;
}

const ddpi_cuda &cuda()
{
    return the_driver().cuda;
}

cudaError_t as_error(ddpi_cu_result result)
{
    return static_cast<cudaError_t>(result);
}

ddpi_cu_deviceptr as_address(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer);
}

void run_launch(void *argument)
{
    const launch *self = static_cast<launch *>(argument);
    self->kernel(self->device);
    delete self;
}

} // namespace

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = "unknown";
    if (error == cudaErrorInsufficientDriver)
        return "no driver";
    if (error == cudaErrorNoDevice)
        return "no CUDA-capable device is detected";
    if (the_driver().status == DDP_OK)
        cuda().get_error_string(static_cast<ddpi_cu_result>(error), &text);
    return text;
}

cudaError_t cudaGetLastError()
{
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int *ret_count)
{
    if (the_driver().status == DDP_E_UNSUPPORTED)
        return cudaErrorInsufficientDriver;
    if (the_driver().status != DDP_OK)
        return cudaErrorNoDevice;
    return as_error(cuda().device_get_count(ret_count));
}

cudaError_t cudaSetDevice(int device)
{
    ddpi_cu_context context;
    ddpi_cu_result result = cuda().device_primary_ctx_retain(&context, device);
    if (result == DDPI_CU_SUCCESS)
        result = cuda().ctx_push_current(context);
    current_device = device;
    return as_error(result);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags)
{
    return as_error(cuda().stream_create(ret_stream, flags));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return as_error(cuda().stream_destroy(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return as_error(cuda().stream_synchronize(stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned)
{
    host_event *const event = new host_event{};
    void *word;
    ddpi_cu_result result = cuda().mem_host_alloc(&word, sizeof *event->word, 0);
    if (result == DDPI_CU_SUCCESS)
        result = cuda().mem_host_get_device_pointer(&event->address, word, 0);
    if (result != DDPI_CU_SUCCESS)
        return as_error(result);
    event->word = static_cast<uint32_t *>(word);
    *event->word = 0;
    *ret_event = event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->recorded++;
    return as_error(cuda().stream_write_value32(stream, event->address, event->recorded,
                                                DDPI_CU_STREAM_WRITE_VALUE_DEFAULT));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    return as_error(cuda().stream_wait_value32(stream, event->address, event->recorded,
                                               DDPI_CU_STREAM_WAIT_VALUE_GEQ));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const ddpi_cu_result result = cuda().mem_free_host(event->word);
    delete event;
    return as_error(result);
}

cudaError_t cudaMalloc(void **ret_pointer, size_t size)
{
    ddpi_cu_deviceptr address = 0;
    const ddpi_cu_result result = cuda().mem_alloc(&address, size);
    *ret_pointer = reinterpret_cast<void *>(address);
    return as_error(result);
}

cudaError_t cudaFree(void *pointer)
{
    return as_error(cuda().mem_free(as_address(pointer)));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return as_error(kind == cudaMemcpyHostToDevice
                        ? cuda().memcpy_htod_async(as_address(to), from, size, stream)
                        : cuda().memcpy_dtoh_async(to, as_address(from), size, stream));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    return as_error(
        cuda().memset_d8_async(as_address(to), static_cast<unsigned char>(value), size, stream));
}

void host_enqueue(unsigned blocks, unsigned threads, cudaStream_t stream,
                  std::function<void(int)> kernel)
{
    if (blocks == 0 || threads == 0 || threads > 1024) {
        last_error = cudaErrorInvalidConfiguration;
        return;
    }
    launch *const work = new launch{std::move(kernel), current_device};
    const ddpi_cu_result result = the_driver().launch_host_func(stream, run_launch, work);
    if (result == DDPI_CU_SUCCESS)
        return;
    last_error = as_error(result);
    delete work;
}

const void *host_reach(const void *pointer, int device)
{
    const void *const reached = the_driver().memory_reach(as_address(pointer), 1, device);
    if (reached == nullptr) {
        fprintf(stderr, "runtime: a kernel cannot reach %p from device %d\n", pointer, device);
        abort();
    }
    return reached;
}
