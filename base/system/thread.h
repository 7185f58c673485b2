/*
 * thread.h - starts threads that receive no signals.
 */
#ifndef DDPI_THREAD_H
#define DDPI_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Start a thread that runs @run(@arg) with all signals blocked, so that the program's own threads
 * handle its signals. @stack_size: in bytes, 0 for the default. The caller joins or detaches the
 * thread. Returns 0 or an errno. */
int ddpi_thread_start(pthread_t *ret_thread, size_t stack_size, void *(*run)(void *arg), void *arg);

#endif
