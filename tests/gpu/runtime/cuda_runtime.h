/*
 * cuda_runtime.h - stands in for the toolkit's, so that a program written for the CUDA runtime runs
 * on the driver of tests/cuda: the functions that examples use, kernels as C++ compiled for the
 * host. Launches have the form that host_launches.py gives them.
 */
#ifndef TESTS_GPU_CUDA_RUNTIME_H
#define TESTS_GPU_CUDA_RUNTIME_H

#include "cuda_words.h"

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>

/* The numbers of the driver's results. */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorUnknown = 999,
};

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };

struct cudaFuncAttributes {
};

typedef struct ddpi_cu_stream_object *cudaStream_t;
typedef struct host_event *cudaEvent_t;

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int *ret_count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaMalloc(void **ret_pointer, size_t size);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream);

template <class Type> cudaError_t cudaMalloc(Type **ret_pointer, size_t size)
{
    void *pointer;
    const cudaError_t result = cudaMalloc(&pointer, size);
    if (result == cudaSuccess)
        *ret_pointer = static_cast<Type *>(pointer);
    return result;
}

template <class Kernel> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, Kernel *)
{
    return cudaSuccess;
}

/* Put @kernel on @stream; it is called on the stream's thread with the number of the device. */
void host_enqueue(unsigned blocks, unsigned threads, cudaStream_t stream,
                  std::function<void(int)> kernel);

/* Where the host has the memory of @device at @pointer; ends the process if there is none, as the
 * GPU would end the context. */
const void *host_reach(const void *pointer, int device);

template <class Type> Type host_argument(Type value, int device)
{
    if constexpr (std::is_pointer_v<Type>)
        return static_cast<Type>(const_cast<void *>(host_reach(value, device)));
    else
        return value;
}

/* kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...) */
template <class... Parameters, class... Arguments>
void host_launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t,
                 cudaStream_t stream, Arguments... arguments)
{
    const std::tuple<Parameters...> given(arguments...);
    host_enqueue(blocks, threads, stream, [=](int device) {
        const auto reached = std::apply(
            [=](auto... each) { return std::make_tuple(host_argument(each, device)...); }, given);
        gridDim.x = blocks;
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
                std::apply(kernel, reached);
    });
}

#endif
