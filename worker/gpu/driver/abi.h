/*
 * abi.h - what is needed of the binary interface of the CUDA driver: types, constants, results.
 *
 * Our own declarations, so that the library builds where there is no CUDA toolkit. Names are the
 * driver's with DDPI_CU_ for CU_ and CUDA_; a test compares each with cuda.h where that is found.
 * Enumerations that functions take are passed as plain unsigned, which is what they are.
 */
#ifndef DDPI_ABI_H
#define DDPI_ABI_H

#include <stdint.h>

/* The results that are told apart by name somewhere; others are passed on as numbers. */
#define DDPI_CU_RESULT_MAP(X)                 \
    X(SUCCESS, 0)                             \
    X(ERROR_INVALID_VALUE, 1)                 \
    X(ERROR_OUT_OF_MEMORY, 2)                 \
    X(ERROR_NOT_INITIALIZED, 3)               \
    X(ERROR_DEINITIALIZED, 4)                 \
    X(ERROR_STUB_LIBRARY, 34)                 \
    X(ERROR_NO_DEVICE, 100)                   \
    X(ERROR_INVALID_DEVICE, 101)              \
    X(ERROR_INVALID_IMAGE, 200)               \
    X(ERROR_INVALID_CONTEXT, 201)             \
    X(ERROR_MAP_FAILED, 205)                  \
    X(ERROR_ALREADY_MAPPED, 208)              \
    X(ERROR_NO_BINARY_FOR_GPU, 209)           \
    X(ERROR_PEER_ACCESS_UNSUPPORTED, 217)     \
    X(ERROR_OPERATING_SYSTEM, 304)            \
    X(ERROR_INVALID_HANDLE, 400)              \
    X(ERROR_NOT_FOUND, 500)                   \
    X(ERROR_NOT_READY, 600)                   \
    X(ERROR_ILLEGAL_ADDRESS, 700)             \
    X(ERROR_PEER_ACCESS_ALREADY_ENABLED, 704) \
    X(ERROR_PEER_ACCESS_NOT_ENABLED, 705)     \
    X(ERROR_CONTEXT_IS_DESTROYED, 709)        \
    X(ERROR_MISALIGNED_ADDRESS, 716)          \
    X(ERROR_LAUNCH_FAILED, 719)               \
    X(ERROR_NOT_PERMITTED, 800)               \
    X(ERROR_NOT_SUPPORTED, 801)               \
    X(ERROR_SYSTEM_DRIVER_MISMATCH, 803)      \
    X(ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)  \
    X(ERROR_STREAM_CAPTURE_IMPLICIT, 906)     \
    X(ERROR_UNKNOWN, 999)

typedef enum ddpi_cu_result {
#define DDPI_CU_RESULT_ENUM(name, value) DDPI_CU_##name = value,
    DDPI_CU_RESULT_MAP(DDPI_CU_RESULT_ENUM)
#undef DDPI_CU_RESULT_ENUM
} ddpi_cu_result;

/* Everything else that has a number, grouped by the function that takes or returns it. */
#define DDPI_CU_CONSTANT_MAP(X)                                                          \
    /* cuGetProcAddress: flags, and what became of the search */                         \
    X(GET_PROC_ADDRESS_LEGACY_STREAM, 1)                                                 \
    X(GET_PROC_ADDRESS_SUCCESS, 0)                                                       \
    X(GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                                              \
    X(GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)                                        \
    /* cuDeviceGetAttribute */                                                           \
    X(DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                         \
    X(DEVICE_ATTRIBUTE_INTEGRATED, 18)                                                   \
    X(DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                           \
    X(DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                     \
    X(DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                     \
    X(DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                         \
    X(DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                 \
    /* cuPointerGetAttributes: what may be asked, and kinds of memory */                 \
    X(POINTER_ATTRIBUTE_CONTEXT, 1)                                                      \
    X(POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                  \
    X(POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                               \
    X(POINTER_ATTRIBUTE_HOST_POINTER, 4)                                                 \
    X(POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                    \
    X(POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                   \
    X(POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                               \
    X(POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                  \
    X(POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                            \
    X(POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                  \
    X(POINTER_ATTRIBUTE_MAPPED, 13)                                                      \
    X(POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                        \
    X(POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 20)                                             \
    X(MEMORYTYPE_HOST, 1)                                                                \
    X(MEMORYTYPE_DEVICE, 2)                                                              \
    X(MEMORYTYPE_ARRAY, 3)                                                               \
    X(MEMORYTYPE_UNIFIED, 4)                                                             \
    /* cuMemHostAlloc */                                                                 \
    X(MEMHOSTALLOC_PORTABLE, 1)                                                          \
    X(MEMHOSTALLOC_DEVICEMAP, 2)                                                         \
    /* cuStreamCreate, cuStreamIsCapturing, cuStreamWaitValue32, cuStreamWriteValue32 */ \
    X(STREAM_DEFAULT, 0)                                                                 \
    X(STREAM_NON_BLOCKING, 1)                                                            \
    X(STREAM_CAPTURE_MODE_RELAXED, 2)                                                    \
    X(STREAM_CAPTURE_STATUS_NONE, 0)                                                     \
    X(STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                   \
    X(STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                              \
    X(STREAM_WAIT_VALUE_GEQ, 0)                                                          \
    X(STREAM_WAIT_VALUE_EQ, 1)                                                           \
    X(STREAM_WRITE_VALUE_DEFAULT, 0)                                                     \
    /* cuIpcOpenMemHandle */                                                             \
    X(IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                \
    /* cuMemCreate and the rest of virtual memory */                                     \
    X(MEM_ALLOCATION_TYPE_PINNED, 1)                                                     \
    X(MEM_HANDLE_TYPE_NONE, 0)                                                           \
    X(MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                          \
    X(MEM_LOCATION_TYPE_DEVICE, 1)                                                       \
    X(MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                  \
    X(MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                              \
    X(MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                     \
    X(MEM_ACCESS_FLAGS_PROT_READ, 1)                                                     \
    X(MEM_ACCESS_FLAGS_PROT_READWRITE, 3)

enum {
#define DDPI_CU_CONSTANT_ENUM(name, value) DDPI_CU_##name = value,
    DDPI_CU_CONSTANT_MAP(DDPI_CU_CONSTANT_ENUM)
#undef DDPI_CU_CONSTANT_ENUM
};

/* An address in the memory of a device. A number, so that nothing on the host dereferences it. */
typedef uint64_t ddpi_cu_deviceptr;

/* The ordinal of a device; also what the driver calls a CUdevice. */
typedef int ddpi_cu_device;

typedef struct ddpi_cu_ctx_object *ddpi_cu_context;
typedef struct ddpi_cu_stream_object *ddpi_cu_stream; /* NULL: the legacy default stream */
typedef struct ddpi_cu_module_object *ddpi_cu_module;
typedef struct ddpi_cu_function_object *ddpi_cu_function;
typedef uint64_t ddpi_cu_mem_handle; /* physical memory; see cuMemCreate */

struct ddpi_cu_uuid {
    char bytes[16];
};

/* Names the memory of another process: bytes to send there, meaningless otherwise. */
struct ddpi_cu_ipc_handle {
    char reserved[64];
};

struct ddpi_cu_mem_location {
    unsigned type;
    int id;
};

struct ddpi_cu_mem_prop {
    unsigned type;
    unsigned requested_handle_types;
    struct ddpi_cu_mem_location location;
    void *win32_handle_metadata;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } alloc_flags;
};

struct ddpi_cu_mem_access {
    struct ddpi_cu_mem_location location;
    unsigned flags;
};

#endif
