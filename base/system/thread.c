/*
 * thread.c - starts threads that receive no signals, and asks the kernel for short slices of time.
 * Owns nothing: the caller owns the thread.
 */
#include "thread.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHORT_SLICE_NS = 100 * 1000, POLICY_OTHER = 0 };

/* As linux/sched/types.h has it. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

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

int ddpi_thread_unblock_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

void ddpi_thread_ask_short_slices(void)
{
    struct scheduling own = {.size = sizeof own};
    if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0 || own.policy != POLICY_OTHER)
        return;
    own.runtime_ns = SHORT_SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &own, 0);
}
