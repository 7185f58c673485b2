/*
 * gpu.h - the GPUs of a node as data: which of them a worker sees, and how messages name them.
 * Pure: the callers of NVML fill the structs.
 */
#ifndef DAEMON_GPU_H
#define DAEMON_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GPUS_MAX = 64,
    GPU_INSTANCES_MAX = 8, /* of MIG; today's hardware has 7 */
    GPU_TEXT = 96,         /* the longest name or UUID of NVML */
    GPU_LABEL = 2 * GPU_TEXT,
    GPU_SIZE_TEXT = 24,
};

struct gpu {
    uint32_t index;      /* in NVML and nvidia-smi */
    char uuid[GPU_TEXT]; /* "GPU-8a56a4bc-..." */
    char name[GPU_TEXT];
    bool split; /* in MIG mode: programs use its instances */
    uint32_t instances;
    char instance_uuids[GPU_INSTANCES_MAX][GPU_TEXT]; /* "MIG-..." */
};

/*
 * The devices that CUDA shows to a process with CUDA_VISIBLE_DEVICES=@list (NULL: not set), as
 * places in @gpus. @ret_visible has room for @count; returns how many.
 *
 * A list has indices, or beginnings of UUIDs, of GPUs or of MIG instances. It ends before the first
 * entry that is invalid, ambiguous, or of another kind than the first. A list that names a device
 * twice counts as empty. If a MIG instance is among the devices, the process gets one instance
 * only.
 */
uint32_t gpu_visible(const struct gpu *gpus, uint32_t count, const char *list,
                     uint32_t *ret_visible);

/* "GPU 3 (NVIDIA H200, GPU-8a56a4bc)". */
void gpu_label(const struct gpu *gpu, char text[GPU_LABEL]);

/* "12.3 GiB", "512 MiB". */
void gpu_size(uint64_t bytes, char text[GPU_SIZE_TEXT]);

#endif
