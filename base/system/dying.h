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

/* Whether the process or thread @pid has lost its program and its memory for good, or does not
 * exist. One that calls exec may seem so for a moment. false for one that this process may not look
 * at. */
bool ddpi_is_dying(pid_t pid);

/*
 * Let other threads have the processor where the process @pid frees its memory, and every processor
 * before it does. It is moved only among the processors that the calling thread may use. Nothing
 * happens while a thread of the process has its program, as one that calls exec does, and to the
 * process of another user. Takes some 20 us for each thread that has not ended, and until the
 * kernel can interrupt the one that frees memory, which can be milliseconds.
 */
void ddpi_dying_step_aside(pid_t pid);

#endif
