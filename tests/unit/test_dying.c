/*
 * test_dying.c - which processes are dying, and that only those lose priority and processor.
 */
#include "check_main.h"
#include "dying.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 256 * 1024 * 1024, ATTEMPTS = 20, LAST = 19 };

static pid_t start_child(size_t resident)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char *memory =
            mmap(NULL, resident + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            _exit(1);
        madvise(memory, resident + 1, MADV_NOHUGEPAGE); /* to be freed in many steps */
        memset(memory, 1, resident + 1);
        (void)!write(ready[1], memory, 1);
        for (;;)
            pause();
    }
    close(ready[1]); /* so that the end of a child that has failed ends the wait */
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == pid;
}

static void reap(pid_t pid)
{
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_living_process_keeps_priority_and_processors)
{
    cpu_set_t before, after;
    pid_t pid = start_child(0);
    int priority = getpriority(PRIO_PROCESS, (id_t)pid);
    ck_assert_int_eq(sched_getaffinity(pid, sizeof before, &before), 0);
    ck_assert(!ddpi_is_dying(pid));
    ddpi_dying_step_aside(pid);
    ck_assert_int_eq(getpriority(PRIO_PROCESS, (id_t)pid), priority);
    ck_assert_int_eq(sched_getaffinity(pid, sizeof after, &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    reap(pid);
}
END_TEST

/* While it frees its memory; what it has become its zombie still shows. If all is freed before this
 * process gets to run, another one is killed. */
START_TEST(a_dying_process_comes_last)
{
    int priority = getpriority(PRIO_PROCESS, 0);
    ck_assert_int_lt(priority, LAST);
    for (int i = 0; i < ATTEMPTS && priority != LAST; i++) {
        pid_t pid = start_child(MEMORY);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        while (!has_ended(pid))
            ddpi_dying_step_aside(pid);
        ck_assert(ddpi_is_dying(pid));
        priority = getpriority(PRIO_PROCESS, (id_t)pid);
        reap(pid);
    }
    ck_assert_int_eq(priority, LAST);
}
END_TEST

START_TEST(a_zombie_is_dead_and_stays_as_it_is)
{
    pid_t pid = start_child(0);
    int priority = getpriority(PRIO_PROCESS, (id_t)pid);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    while (!has_ended(pid))
        sched_yield();
    ck_assert(ddpi_is_dying(pid));
    ddpi_dying_step_aside(pid);
    ck_assert_int_eq(getpriority(PRIO_PROCESS, (id_t)pid), priority);
    reap(pid);
}
END_TEST

/* Ids that shared memory may show: none, a thread of the kernel, this process, one that is gone. */
START_TEST(any_id_is_harmless)
{
    pid_t gone = start_child(0);
    int priority = getpriority(PRIO_PROCESS, 0);
    ck_assert_int_eq(kill(gone, SIGKILL), 0);
    reap(gone);
    const pid_t ids[] = {0, -1, 2, getpid(), gone, INT32_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ddpi_dying_step_aside(ids[i]);
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), priority);
    ck_assert(!ddpi_is_dying(getpid()));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("dying");
    TCase *tcase = tcase_create("dying");
    ADD_TESTS(tcase, a_living_process_keeps_priority_and_processors, a_dying_process_comes_last,
              a_zombie_is_dead_and_stays_as_it_is, any_id_is_harmless);
    suite_add_tcase(suite, tcase);
    return suite;
}
