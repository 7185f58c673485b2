/*
 * gpu_count.h - how many devices a worker of this node will see, for --nproc-per-node=gpu.
 */
#ifndef DAEMON_GPU_COUNT_H
#define DAEMON_GPU_COUNT_H

#include <ddprun/status.h>
#include <stdint.h>

/*
 * Ask NVML, with CUDA_VISIBLE_DEVICES=@visible (NULL: not set), in a child process, for at most
 * @timeout_ms: a process that has called NVML should not be forked afterwards, and nothing but its
 * end gets it out of a call into a broken driver.
 *
 * DDP_OK: *@ret_count is 0 where there is no GPU; then @err says why. Any other status: there is a
 * driver, and it cannot be asked.
 */
DDP_MUST_CHECK ddp_status gpu_count(const char *visible, uint64_t timeout_ms, uint32_t *ret_count,
                                    struct ddp_error *err);

#endif
