/*
 * gpu_look.h - asks NVML which worker uses which GPU, and whether memory of workers that have ended
 * is free again.
 *
 * For one thread, and not for the loop's: every call here may block in the driver.
 */
#ifndef DAEMON_GPU_LOOK_H
#define DAEMON_GPU_LOOK_H

#include "nvml_library.h"

#include <sys/types.h>

enum { GPU_USES_MAX = 512, GPU_HOLDERS_TEXT = 2048 };

/* A process on a GPU: a worker or its descendant. */
struct gpu_use {
    uint32_t local_rank;
    uint32_t gpu; /* place in the list */
    pid_t pid;
    uint64_t bytes; /* NVML_LIBRARY_UNKNOWN: NVML does not say */
    uint64_t seen_us;
};

struct gpu_look {
    struct nvml_library nvml;
    struct gpu gpus[GPUS_MAX];
    nvml_library_device devices[GPUS_MAX];
    uint32_t count;
    uint32_t visible[GPUS_MAX]; /* to workers, in CUDA's order */
    uint32_t visible_count;
    bool watched[GPUS_MAX];
    uint64_t unlisted[GPUS_MAX]; /* memory in use at the start without a process */
    struct gpu_use uses[GPU_USES_MAX];
    uint32_t uses_count;
};

/* Open NVML, list the GPUs, and record how much of their memory is in use: the workers have just
 * been started. DDP_E_NOT_FOUND: workers see no GPU with CUDA_VISIBLE_DEVICES=@list. */
DDP_MUST_CHECK ddp_status gpu_look_open(struct gpu_look *look, const char *list,
                                        struct ddp_error *err);

/* Other workers have been started: drop the recorded uses. */
void gpu_look_forget(struct gpu_look *look);

/* Record what the @count @workers use, by local rank; earlier uses stay recorded. */
void gpu_look_take(struct gpu_look *look, const pid_t *workers, uint32_t count);

/* All @workers have ended: whether all their GPU memory is free. */
bool gpu_look_is_free(struct gpu_look *look, const pid_t *workers, uint32_t count);

/* The holders of memory that is not free, one per line. Later calls do not wait for it. */
void gpu_look_holders(struct gpu_look *look, const pid_t *workers, uint32_t count,
                      char text[GPU_HOLDERS_TEXT]);

#endif
