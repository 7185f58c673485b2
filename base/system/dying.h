/*
 * dying.h - another process that is dying: whether it is, and which threads get its processor.
 *
 * The kernel frees the memory of a process before all else that others could see of its end. That
 * takes some 60 ms for each GiB, on the processor where its last thread was, which survivors may be
 * waiting for.
 */
#ifndef DDPI_DYING_H
#define DDPI_DYING_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether @pid has lost its program and its memory for good. A process that calls exec may seem so
 * for a moment, but it gets a new program; and false for a process that this one may not look
 * at. */
bool ddpi_is_dying(pid_t pid);

/*
 * Let other threads have the processor where a thread of @pid frees memory, and any other one
 * before it. Nothing happens to a process that is not dying, or is another user's. Does not block
 * for longer than the kernel takes to interrupt that thread, some 10 us.
 */
void ddpi_dying_step_aside(pid_t pid);

#endif
