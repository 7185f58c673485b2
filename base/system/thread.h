/*
 * thread.h - starts threads that receive no signals, lets one receive all of them, and lets one run
 * soon when it wakes up.
 */
#ifndef DDPI_THREAD_H
#define DDPI_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Start a thread that runs @run(@arg) with all signals blocked, so that the program's own threads
 * handle its signals. @stack_size: in bytes, 0 for the default. The caller joins or detaches the
 * thread. Returns 0 or an errno. */
int ddpi_thread_start(pthread_t *ret_thread, size_t stack_size, void *(*run)(void *arg), void *arg);

/* Let the calling thread receive all signals, even those that the caller of this program has
 * blocked. Async-signal-safe. Returns 0, or -1 with errno set. */
int ddpi_thread_unblock_signals(void);

/*
 * Ask the kernel to give the calling thread short slices of time, and so, when it wakes up, to let
 * it interrupt a thread with longer ones (Linux 6.12). For a thread that does little whenever it
 * wakes up. Without effect on an older kernel, and for a thread with a scheduling policy of its
 * own.
 */
void ddpi_thread_ask_short_slices(void);

#endif
