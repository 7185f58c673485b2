/*
 * gpu_count.h - counts the devices that workers of this node will see, for --nproc-per-node=gpu.
 */
#ifndef DAEMON_GPU_COUNT_H
#define DAEMON_GPU_COUNT_H

#include <ddprun/status.h>
#include <stdint.h>

/*
 * Ask NVML, with CUDA_VISIBLE_DEVICES=@visible (NULL: not set), in a child process, for at most
 * @timeout_ms. A process that has called NVML should not fork afterwards, and only a kill ends a
 * call into a broken driver.
 *
 * DDP_OK: *@ret_count devices; if 0, @err says why. Any other status: the driver does not answer.
 */
DDP_MUST_CHECK ddp_status gpu_count(const char *visible, uint64_t timeout_ms, uint32_t *ret_count,
                                    struct ddp_error *err);

#endif
