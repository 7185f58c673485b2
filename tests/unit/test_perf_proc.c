/*
 * test_perf_proc.c - what the benchmarks read about processes from /proc.
 */
#include "check_main.h"
#include "perf.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t start_child(void)
{
    pid_t pid = _Fork(); /* runs no handlers, as there are threads */
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

struct parent {
    pid_t child;
    pthread_barrier_t barrier; /* passed when the child is there, and when it has been counted */
};

static void *be_parent(void *arg)
{
    struct parent *parent = arg;
    parent->child = start_child();
    pthread_barrier_wait(&parent->barrier);
    pthread_barrier_wait(&parent->barrier);
    return NULL;
}

/* The workers of ddprun are started by a thread of the agent. */
START_TEST(children_of_all_threads_are_counted)
{
    struct parent parent;
    pthread_t thread;
    pid_t one = -1;
    ck_assert_uint_eq(perf_children(getpid(), &one), 0);
    ck_assert_int_eq(one, 0);
    pthread_barrier_init(&parent.barrier, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, be_parent, &parent), 0);
    pthread_barrier_wait(&parent.barrier);
    ck_assert_uint_eq(perf_children(getpid(), &one), 1);
    ck_assert_int_eq(one, parent.child);
    pid_t own[] = {start_child(), start_child()};
    ck_assert_uint_eq(perf_children(getpid(), &one), 3);
    ck_assert(one == parent.child || one == own[0] || one == own[1]);
    pthread_barrier_wait(&parent.barrier);
    pthread_join(thread, NULL);
    end_child(parent.child);
    end_child(own[0]);
    end_child(own[1]);
    pthread_barrier_destroy(&parent.barrier);
}
END_TEST

START_TEST(one_that_is_over_has_none)
{
    pid_t one, pid = start_child();
    end_child(pid);
    ck_assert_uint_eq(perf_children(pid, &one), 0);
    ck_assert_int_eq(one, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("perf_proc");
    TCase *tcase = tcase_create("perf_proc");
    tcase_add_test(tcase, children_of_all_threads_are_counted);
    tcase_add_test(tcase, one_that_is_over_has_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
