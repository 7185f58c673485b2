/*
 * nvml_library.h - the functions of NVML, NVIDIA's management library, that the agent calls: our
 * own declarations, resolved at run time. No GPU is needed to compile.
 *
 * A call may block for any time, forever with a broken GPU, so none belongs on the loop's thread.
 * NVML itself is safe to call from several threads.
 */
#ifndef DAEMON_NVML_LIBRARY_H
#define DAEMON_NVML_LIBRARY_H

#include "gpu.h"

#include <ddprun/status.h>

typedef struct nvmlDevice_st *nvml_library_device;
typedef struct nvmlEventSet_st *nvml_library_event_set;

#define NVML_LIBRARY_RESULT_MAP(X) \
    X(SUCCESS, 0)                  \
    X(ERROR_INVALID_ARGUMENT, 2)   \
    X(ERROR_NOT_SUPPORTED, 3)      \
    X(ERROR_NO_PERMISSION, 4)      \
    X(ERROR_NOT_FOUND, 6)          \
    X(ERROR_INSUFFICIENT_SIZE, 7)  \
    X(ERROR_DRIVER_NOT_LOADED, 9)  \
    X(ERROR_TIMEOUT, 10)           \
    X(ERROR_GPU_IS_LOST, 15)       \
    X(ERROR_LIB_RM_VERSION_MISMATCH, 18)

typedef enum nvml_library_result {
#define NVML_LIBRARY_RESULT_ENUM(name, value) NVML_LIBRARY_##name = value,
    NVML_LIBRARY_RESULT_MAP(NVML_LIBRARY_RESULT_ENUM)
#undef NVML_LIBRARY_RESULT_ENUM
} nvml_library_result;

enum {
    NVML_LIBRARY_DEVICE_MIG_ENABLE = 1,
    NVML_LIBRARY_EVENT_ECC_SINGLE = 0x1,
    NVML_LIBRARY_EVENT_ECC_DOUBLE = 0x2,
    NVML_LIBRARY_EVENT_XID = 0x8,
};

#define NVML_LIBRARY_UNKNOWN UINT64_MAX /* memory of a process that NVML does not know */

struct nvml_library_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct nvml_library_memory {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved; /* by the driver, and not in @used */
    unsigned long long free;
    unsigned long long used;
};
#define NVML_LIBRARY_MEMORY_VERSION ((unsigned)sizeof(struct nvml_library_memory) | 2U << 24)

struct nvml_library_event {
    nvml_library_device device;
    unsigned long long type;
    unsigned long long data; /* of an Xid: its number */
    unsigned gpu_instance;
    unsigned compute_instance;
};

/* X(member, name in the library, required, parameters). An optional function is NULL if the library
 * lacks it. */
#define NVML_LIBRARY_FUNCTION_MAP(X)                                                               \
    X(init, nvmlInit_v2, true, (void))                                                             \
    X(get_count, nvmlDeviceGetCount_v2, true, (unsigned *))                                        \
    X(get_device, nvmlDeviceGetHandleByIndex_v2, true, (unsigned, nvml_library_device *))          \
    X(get_uuid, nvmlDeviceGetUUID, true, (nvml_library_device, char *, unsigned))                  \
    X(get_name, nvmlDeviceGetName, false, (nvml_library_device, char *, unsigned))                 \
    X(get_mig_mode, nvmlDeviceGetMigMode, false, (nvml_library_device, unsigned *, unsigned *))    \
    X(get_max_instances, nvmlDeviceGetMaxMigDeviceCount, false, (nvml_library_device, unsigned *)) \
    X(get_instance, nvmlDeviceGetMigDeviceHandleByIndex, false,                                    \
      (nvml_library_device, unsigned, nvml_library_device *))                                      \
    X(get_processes, nvmlDeviceGetComputeRunningProcesses_v3, false,                               \
      (nvml_library_device, unsigned *, struct nvml_library_process *))                            \
    X(get_memory, nvmlDeviceGetMemoryInfo_v2, false,                                               \
      (nvml_library_device, struct nvml_library_memory *))                                         \
    X(get_event_types, nvmlDeviceGetSupportedEventTypes, false,                                    \
      (nvml_library_device, unsigned long long *))                                                 \
    X(create_event_set, nvmlEventSetCreate, false, (nvml_library_event_set *))                     \
    X(register_events, nvmlDeviceRegisterEvents, false,                                            \
      (nvml_library_device, unsigned long long, nvml_library_event_set))                           \
    X(wait_event, nvmlEventSetWait_v2, false,                                                      \
      (nvml_library_event_set, struct nvml_library_event *, unsigned))

struct nvml_library {
#define NVML_LIBRARY_MEMBER(member, name, needed, parameters) \
    nvml_library_result(*member) parameters;
    NVML_LIBRARY_FUNCTION_MAP(NVML_LIBRARY_MEMBER)
#undef NVML_LIBRARY_MEMBER
};

/*
 * Load and initialise the library. It stays loaded: it may have threads, and the end of the process
 * frees everything.
 *
 * DDP_E_NOT_FOUND: this machine has no NVML or no driver, and so no usable GPU. For any other
 * failure
 * @err says what is wrong, and what to do.
 */
DDP_MUST_CHECK ddp_status nvml_library_open(struct nvml_library *nvml, struct ddp_error *err);

/* List the GPUs that answer, at most GPUS_MAX, with their handles. */
DDP_MUST_CHECK ddp_status nvml_library_list(const struct nvml_library *nvml, struct gpu *ret_gpus,
                                            nvml_library_device *ret_devices, uint32_t *ret_count,
                                            struct ddp_error *err);

#endif
