/*
 * gpu_look.h - looks at the GPUs through NVML: which worker uses which, and whether the memory of
 * workers that have ended is back.
 *
 * For one thread, and none that may not wait: every call here asks the driver.
 */
#ifndef DAEMON_GPU_LOOK_H
#define DAEMON_GPU_LOOK_H

#include "nvml_library.h"

#include <sys/types.h>

enum { GPU_USES_MAX = 512, GPU_HOLDERS_TEXT = 2048 };

/* A process on a GPU: a worker, or one that a worker has started. */
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
    uint64_t unlisted[GPUS_MAX]; /* memory in use that belonged to no process, at the beginning */
    struct gpu_use uses[GPU_USES_MAX];
    uint32_t uses_count;
};

/* Open NVML, list the GPUs, and see what is in use of them, as the workers have just been started.
 * DDP_E_NOT_FOUND: workers see no GPU with CUDA_VISIBLE_DEVICES=@list. */
DDP_MUST_CHECK ddp_status gpu_look_open(struct gpu_look *look, const char *list,
                                        struct ddp_error *err);

/* Other workers have been started. */
void gpu_look_forget(struct gpu_look *look);

/* Note what the @count @workers use, by local rank; what one used before and does no more stays. */
void gpu_look_take(struct gpu_look *look, const pid_t *workers, uint32_t count);

/* All @workers have ended: whether nothing of theirs is left on any GPU. */
bool gpu_look_is_free(struct gpu_look *look, const pid_t *workers, uint32_t count);

/* Who has the memory that is not back, a line for each. What is taken then is taken for good, and
 * not waited for again. */
void gpu_look_holders(struct gpu_look *look, const pid_t *workers, uint32_t count,
                      char text[GPU_HOLDERS_TEXT]);

#endif
