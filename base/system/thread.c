/*
 * thread.c - starts threads that receive no signals. Owns nothing: the caller owns the thread.
 */
#include "thread.h"

#include <signal.h>

/* A new thread has the signal mask of the thread that creates it. */
static int create_with_signals_blocked(pthread_t *ret_thread, const pthread_attr_t *attr,
                                       void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int sys_errno = pthread_create(ret_thread, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sys_errno;
}

int ddpi_thread_start(pthread_t *ret_thread, size_t stack_size, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attr;
    int sys_errno = pthread_attr_init(&attr);
    if (sys_errno != 0)
        return sys_errno;
    if (stack_size > 0)
        sys_errno = pthread_attr_setstacksize(&attr, stack_size);
    if (sys_errno == 0)
        sys_errno = create_with_signals_blocked(ret_thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return sys_errno;
}
