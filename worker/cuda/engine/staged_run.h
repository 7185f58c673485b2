/*
 * staged_run.h - collectives that the GPU has no way for: through pinned memory, by the algorithm
 * for host memory.
 */
#ifndef DDPI_STAGED_RUN_H
#define DDPI_STAGED_RUN_H

#include "device_state.h"

/*
 * Whether the collective @task is staged. All ranks get the same answer, as they call the same:
 *
 *   gather, scatter, all_to_all              staged
 *   parts of different sizes                 staged
 *   lists of buffers                         staged
 *   reductions                               staged where ddpi_kernels_check() finds no kernel
 *   everything else                          the kernels and copies of the GPU
 */
bool ddpi_is_staged(const struct ddpi_task *task);

/* Carry it out: the caller's stream has reached it. */
ddp_status ddpi_staged_run(struct ddpi_device *device, struct ddpi_task *task);

/* Copy @len bytes between pinned memory and the device, and wait until that is done. */
ddp_status ddpi_staged_download(struct ddpi_device *device, const struct ddpi_wait *wait, void *to,
                                const void *from, size_t len);
ddp_status ddpi_staged_upload(struct ddpi_device *device, const struct ddpi_wait *wait, void *to,
                              const void *from, size_t len);

#endif
