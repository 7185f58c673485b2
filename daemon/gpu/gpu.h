/*
 * gpu.h - the GPUs of a node as data: which of them a worker sees, and how people are told of one.
 * Pure: whoever asks NVML fills the structs.
 */
#ifndef DAEMON_GPU_H
#define DAEMON_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GPUS_MAX = 64,
    GPU_INSTANCES_MAX = 8, /* of MIG; there are 7 of hardware today */
    GPU_TEXT = 96,         /* a name or a UUID, as long as NVML makes them */
    GPU_LABEL = 2 * GPU_TEXT,
    GPU_SIZE_TEXT = 24,
};

struct gpu {
    uint32_t index;      /* as NVML and nvidia-smi count */
    char uuid[GPU_TEXT]; /* "GPU-8a56a4bc-..." */
    char name[GPU_TEXT];
    bool split; /* in MIG mode: only its instances can be used */
    uint32_t instances;
    char instance_uuids[GPU_INSTANCES_MAX][GPU_TEXT]; /* "MIG-..." */
};

/*
 * The devices that CUDA gives to a process with CUDA_VISIBLE_DEVICES=@list (NULL: not set): places
 * in @gpus into @ret_visible, which has room for @count; returns how many.
 *
 * A list has indices, or beginnings of UUIDs, of GPUs or of MIG instances. It ends before the first
 * entry that is none, of another kind than the first, or ambiguous; one that names a device twice
 * is taken for empty. As soon as one MIG instance is among the devices, a process gets one of these
 * and no other device.
 */
uint32_t gpu_visible(const struct gpu *gpus, uint32_t count, const char *list,
                     uint32_t *ret_visible);

/* "GPU 3 (NVIDIA H200, GPU-8a56a4bc)". */
void gpu_label(const struct gpu *gpu, char text[GPU_LABEL]);

/* "12.3 GiB", "512 MiB". */
void gpu_size(uint64_t bytes, char text[GPU_SIZE_TEXT]);

#endif
