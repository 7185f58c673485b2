/*
 * test_thread.c - a thread that is started here has all signals blocked, and its creator as before.
 */
#include "check_main.h"
#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FIRST_RT_SIGNAL = 32 }; /* of the kernel; libc needs the first two itself */

static void *note_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return NULL;
}

static void check_masks(size_t stack_size)
{
    pthread_t thread;
    sigset_t own, seen, after;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    ck_assert_int_eq(ddpi_thread_start(&thread, stack_size, note_mask, &seen), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int sig = 1; sig < FIRST_RT_SIGNAL; sig++) {
        bool can_block = sig != SIGKILL && sig != SIGSTOP;
        ck_assert_int_eq(sigismember(&seen, sig), can_block);
        ck_assert_int_eq(sigismember(&after, sig), sig == SIGUSR1);
    }
}

START_TEST(the_thread_receives_no_signals)
{
    check_masks(0);
    check_masks((size_t)256 * 1024);
}
END_TEST

START_TEST(a_stack_that_cannot_be_is_an_error)
{
    pthread_t thread;
    ck_assert_int_eq(ddpi_thread_start(&thread, 1, note_mask, NULL), EINVAL);
    ck_assert_int_eq(ddpi_thread_start(&thread, SIZE_MAX / 2 & ~(size_t)4095, note_mask, NULL),
                     EAGAIN);
}
END_TEST

START_TEST(signals_that_the_caller_blocked_arrive)
{
    sigset_t all, now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    ck_assert_int_eq(ddpi_thread_unblock_signals(), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    ck_assert_int_eq(sigisemptyset(&now), 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("thread");
    TCase *tcase = tcase_create("thread");
    tcase_add_test(tcase, the_thread_receives_no_signals);
    tcase_add_test(tcase, a_stack_that_cannot_be_is_an_error);
    tcase_add_test(tcase, signals_that_the_caller_blocked_arrive);
    suite_add_tcase(suite, tcase);
    return suite;
}
