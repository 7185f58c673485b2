/*
 * nvml_library.h - the functions of NVML, NVIDIA's management library, that the agent calls: own
 * declarations of them, found at run time. Nothing here needs a GPU to be compiled.
 *
 * Any call may take as long as the driver likes, for ever if a GPU is broken: none of them belongs
 * on the loop's thread. NVML itself may be called by several threads.
 */
#ifndef DAEMON_NVML_LIBRARY_H
#define DAEMON_NVML_LIBRARY_H

#include "gpu.h"

#include <ddprun/status.h>

typedef struct nvmlDevice_st *nvmllib_device;
typedef struct nvmlEventSet_st *nvmllib_event_set;

#define NVMLLIB_RESULT_MAP(X)     \
    X(SUCCESS, 0)                 \
    X(ERROR_INVALID_ARGUMENT, 2)  \
    X(ERROR_NOT_SUPPORTED, 3)     \
    X(ERROR_NO_PERMISSION, 4)     \
    X(ERROR_NOT_FOUND, 6)         \
    X(ERROR_INSUFFICIENT_SIZE, 7) \
    X(ERROR_DRIVER_NOT_LOADED, 9) \
    X(ERROR_TIMEOUT, 10)          \
    X(ERROR_GPU_IS_LOST, 15)      \
    X(ERROR_LIB_RM_VERSION_MISMATCH, 18)

typedef enum nvmllib_result {
#define NVMLLIB_RESULT_ENUM(name, value) NVMLLIB_##name = value,
    NVMLLIB_RESULT_MAP(NVMLLIB_RESULT_ENUM)
#undef NVMLLIB_RESULT_ENUM
} nvmllib_result;

enum {
    NVMLLIB_DEVICE_MIG_ENABLE = 1,
    NVMLLIB_EVENT_ECC_SINGLE = 0x1,
    NVMLLIB_EVENT_ECC_DOUBLE = 0x2,
    NVMLLIB_EVENT_XID = 0x8,
};

#define NVMLLIB_UNKNOWN UINT64_MAX /* memory of a process */

struct nvmllib_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct nvmllib_memory {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved; /* by the driver, and not in @used */
    unsigned long long free;
    unsigned long long used;
};
#define NVMLLIB_MEMORY_VERSION ((unsigned)sizeof(struct nvmllib_memory) | 2U << 24)

struct nvmllib_event {
    nvmllib_device device;
    unsigned long long type;
    unsigned long long data; /* of an Xid: its number */
    unsigned gpu_instance;
    unsigned compute_instance;
};

/* X(member, name in the library, whether nothing works without it, parameters). What is optional
 * is NULL where the library does not have it. */
#define NVMLLIB_FUNCTION_MAP(X)                                                                 \
    X(init, nvmlInit_v2, true, (void))                                                          \
    X(get_count, nvmlDeviceGetCount_v2, true, (unsigned *))                                     \
    X(get_device, nvmlDeviceGetHandleByIndex_v2, true, (unsigned, nvmllib_device *))            \
    X(get_uuid, nvmlDeviceGetUUID, true, (nvmllib_device, char *, unsigned))                    \
    X(get_name, nvmlDeviceGetName, false, (nvmllib_device, char *, unsigned))                   \
    X(get_mig_mode, nvmlDeviceGetMigMode, false, (nvmllib_device, unsigned *, unsigned *))      \
    X(get_max_instances, nvmlDeviceGetMaxMigDeviceCount, false, (nvmllib_device, unsigned *))   \
    X(get_instance, nvmlDeviceGetMigDeviceHandleByIndex, false,                                 \
      (nvmllib_device, unsigned, nvmllib_device *))                                             \
    X(get_processes, nvmlDeviceGetComputeRunningProcesses_v3, false,                            \
      (nvmllib_device, unsigned *, struct nvmllib_process *))                                   \
    X(get_memory, nvmlDeviceGetMemoryInfo_v2, false, (nvmllib_device, struct nvmllib_memory *)) \
    X(get_event_types, nvmlDeviceGetSupportedEventTypes, false,                                 \
      (nvmllib_device, unsigned long long *))                                                   \
    X(create_event_set, nvmlEventSetCreate, false, (nvmllib_event_set *))                       \
    X(register_events, nvmlDeviceRegisterEvents, false,                                         \
      (nvmllib_device, unsigned long long, nvmllib_event_set))                                  \
    X(wait_event, nvmlEventSetWait_v2, false, (nvmllib_event_set, struct nvmllib_event *, unsigned))

struct nvmllib {
#define NVMLLIB_MEMBER(member, name, needed, parameters) nvmllib_result(*member) parameters;
    NVMLLIB_FUNCTION_MAP(NVMLLIB_MEMBER)
#undef NVMLLIB_MEMBER
};

/*
 * Load the library and start it. It stays loaded: it may have threads, and there is nothing to give
 * back that the end of the process does not.
 *
 * DDP_E_NOT_FOUND: this machine has no NVML, or no driver below it: it has no GPUs that could be
 * used. Any other failure says what is wrong with it, and what to do.
 */
DDP_MUST_CHECK ddp_status nvmllib_open(struct nvmllib *nvml, struct ddp_error *err);

/* Up to GPUS_MAX GPUs that answer, with a handle each; returns how many. */
DDP_MUST_CHECK ddp_status nvmllib_list(const struct nvmllib *nvml, struct gpu *ret_gpus,
                                       nvmllib_device *ret_devices, uint32_t *ret_count,
                                       struct ddp_error *err);

#endif
