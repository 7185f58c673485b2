/*
 * test_reap.c - every descendant is found, killed and reaped, in whatever session or group it is.
 */
#include "check_main.h"
#include "reap.h"
#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60000, BRANCHES = 12 };

/* Each process of a tree writes to it when it is ready; the test reads it. */
static int standing[2];

static void prepare(void)
{
    sigset_t child_signal;
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_signal, NULL);
    ck_assert_int_eq(reap_become_subreaper(), 0);
    ck_assert_int_eq(pipe2(standing, O_CLOEXEC), 0);
}

static void stands(void)
{
    if (write(standing[1], "", 1) != 1)
        _exit(1);
}

static void wait_until_standing(int count)
{
    char byte;
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(read(standing[0], &byte, 1), 1);
}

/* A process that only SIGKILL ends. */
static _Noreturn void refuse_to_end(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    stands();
    for (;;)
        pause();
}

static pid_t start(void (*run)(void))
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    run();
    _exit(0);
}

/* A daemon and its child, each in a session of its own. */
static void hide(void)
{
    setsid();
    if (fork() == 0)
        setsid();
    refuse_to_end();
}

static void start_branches(void)
{
    for (int i = 0; i < BRANCHES; i++)
        start(hide);
}

static void start_branches_and_stay(void)
{
    start_branches();
    refuse_to_end();
}

static void nothing_is_left(void)
{
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

START_TEST(orphans_are_adopted_and_swept)
{
    size_t ended = 4711;
    pid_t parent = start(start_branches);
    ck_assert_int_gt(parent, 0);
    ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
    wait_until_standing(2 * BRANCHES);
    ck_assert(reap_sweep(LONG_MS, NULL, &ended));
    ck_assert_uint_eq(ended, 2 * BRANCHES);
    nothing_is_left();
}
END_TEST

START_TEST(a_whole_tree_is_swept)
{
    size_t ended = 4711;
    ck_assert_int_gt(start(start_branches_and_stay), 0);
    wait_until_standing(2 * BRANCHES + 1);
    ck_assert(reap_sweep(LONG_MS, NULL, &ended));
    ck_assert_uint_eq(ended, 2 * BRANCHES + 1);
    nothing_is_left();
}
END_TEST

START_TEST(sweeping_nothing_is_done_at_once)
{
    size_t ended = 4711;
    ck_assert(reap_sweep(0, NULL, &ended));
    ck_assert_uint_eq(ended, 0);
    ck_assert_uint_eq(reap_kill_children(0), 0);
    ck_assert(!reap_collect(NULL, NULL));
}
END_TEST

static void become_nobody(void)
{
    if (setresuid(65534, 65534, 65534) != 0)
        _exit(1);
    refuse_to_end();
}

/* A child that we may not signal stands in for one that is stuck in the kernel. */
START_TEST(what_cannot_be_killed_ends_the_sweep_in_time)
{
    size_t ended = 4711;
    if (geteuid() != 0)
        SKIP("root, who alone can make such a child");
    ck_assert_int_gt(start(become_nobody), 0);
    wait_until_standing(1);
    ck_assert(may_kill_others(false));
    ck_assert_uint_eq(reap_kill_children(0), 0);
    ck_assert(!reap_sweep(20, NULL, &ended));
    ck_assert_uint_eq(ended, 0);
    ck_assert(may_kill_others(true));
    ck_assert(reap_sweep(LONG_MS, NULL, &ended));
    ck_assert_uint_eq(ended, 1);
}
END_TEST

struct exits {
    pid_t pid;
    int status;
    int count;
};

static void note_exit(void *ctx, pid_t pid, int wait_status)
{
    struct exits *exits = ctx;
    exits->pid = pid;
    exits->status = wait_status;
    exits->count++;
}

static void exit_with_seven(void)
{
    _exit(7);
}

static void wait_for_zombie(pid_t pid)
{
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

START_TEST(collecting_tells_each_end_and_what_is_left)
{
    struct exits exits = {0};
    pid_t lasting = start(refuse_to_end);
    wait_until_standing(1);
    ck_assert(reap_collect(note_exit, &exits));
    ck_assert_int_eq(exits.count, 0);

    pid_t ending = start(exit_with_seven);
    wait_for_zombie(ending);
    ck_assert(reap_collect(note_exit, &exits));
    ck_assert_int_eq(exits.count, 1);
    ck_assert_int_eq(exits.pid, ending);
    ck_assert_int_eq(WEXITSTATUS(exits.status), 7);

    ck_assert_uint_eq(reap_kill_children(0), 1);
    wait_for_zombie(lasting);
    ck_assert(!reap_collect(note_exit, &exits));
    ck_assert_int_eq(exits.count, 2);
    ck_assert_int_eq(exits.pid, lasting);
    ck_assert(WIFSIGNALED(exits.status) && WTERMSIG(exits.status) == SIGKILL);
}
END_TEST

static int may_end[2];

static void *fork_in_thread(void *ctx)
{
    char byte;
    *(pid_t *)ctx = start(refuse_to_end);
    return read(may_end[0], &byte, 1) == 1 ? NULL : ctx;
}

START_TEST(children_of_every_thread_are_found)
{
    size_t ended = 0;
    pthread_t thread;
    pid_t child = 0;
    ck_assert_int_eq(pipe2(may_end, O_CLOEXEC), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_in_thread, &child), 0);
    wait_until_standing(1);
    ck_assert(reap_sweep(LONG_MS, NULL, &ended));
    ck_assert_uint_eq(ended, 1);
    nothing_is_left();
    ck_assert_int_eq(write(may_end[1], "", 1), 1);
    pthread_join(thread, NULL);
}
END_TEST

static void take_a_strange_name(void)
{
    prctl(PR_SET_NAME, "a) R 1 (b");
    refuse_to_end();
}

struct described {
    pid_t pid;
    char state;
    char name[17];
    int count;
};

static void describe(void *ctx, pid_t pid, char state, const char *name)
{
    struct described *described = ctx;
    described->pid = pid;
    described->state = state;
    snprintf(described->name, sizeof described->name, "%s", name);
    described->count++;
}

START_TEST(children_are_described_whatever_their_name)
{
    struct described described = {0};
    size_t ended;
    pid_t child = start(take_a_strange_name);
    wait_until_standing(1);
    reap_each_child(0, describe, &described);
    ck_assert_int_eq(described.count, 1);
    ck_assert_int_eq(described.pid, child);
    ck_assert_str_eq(described.name, "a) R 1 (b");
    ck_assert_ptr_nonnull(strchr("RSD", described.state));
    ck_assert_uint_eq(reap_kill_children(0), 1);
    wait_for_zombie(child);
    reap_each_child(0, describe, &described);
    ck_assert_int_eq(described.count, 2);
    ck_assert_int_eq(described.state, 'Z');
    ck_assert(reap_sweep(LONG_MS, NULL, &ended));
    reap_each_child(0, describe, &described);
    ck_assert_int_eq(described.count, 2);
}
END_TEST

/* More children than fit into one read of the kernel's list. */
static void exit_with_0(void)
{
    _exit(0);
}

static void exit_with_3(void)
{
    _exit(3);
}

static void abort_itself(void)
{
    abort();
}

/* As far as the zombies show. */
static bool seen_failing(void (*run)(void), int sig, bool *ret_killed)
{
    siginfo_t info;
    pid_t pid = start(run);
    ck_assert(!reap_is_failing(getpid()));
    if (sig != 0) {
        wait_until_standing(1);
        ck_assert(!reap_is_failing(pid));
        ck_assert_int_eq(kill(pid, sig), 0);
    }
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WSTOPPED | WNOWAIT), 0);
    bool failing = reap_is_failing(pid);
    *ret_killed = reap_is_killed(pid);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    return failing;
}

START_TEST(a_failing_process_is_known_before_its_end)
{
    bool killed;
    ck_assert(!seen_failing(exit_with_0, 0, &killed) && !killed);
    ck_assert(seen_failing(exit_with_3, 0, &killed) && !killed);
    ck_assert(seen_failing(abort_itself, 0, &killed) && !killed);
    ck_assert(seen_failing(refuse_to_end, SIGKILL, &killed) && killed);
    ck_assert(!seen_failing(refuse_to_end, SIGSTOP, &killed) && !killed);
    ck_assert(!reap_is_failing(0x7ffffff) && !reap_is_killed(0x7ffffff));
}
END_TEST

START_TEST(a_long_list_is_read_whole)
{
    enum { MANY = 250 };
    size_t ended;
    for (int i = 0; i < MANY; i++)
        ck_assert_int_gt(start(refuse_to_end), 0);
    wait_until_standing(MANY);
    struct described described = {0};
    reap_each_child(0, describe, &described);
    ck_assert_int_eq(described.count, MANY);
    ck_assert(reap_sweep(LONG_MS, NULL, &ended));
    ck_assert_uint_eq(ended, MANY);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reap");
    TCase *tcase = tcase_create("reap");
    tcase_add_checked_fixture(tcase, prepare, NULL);
    ADD_TESTS(tcase, orphans_are_adopted_and_swept, a_whole_tree_is_swept,
              sweeping_nothing_is_done_at_once, what_cannot_be_killed_ends_the_sweep_in_time,
              collecting_tells_each_end_and_what_is_left, children_of_every_thread_are_found,
              children_are_described_whatever_their_name, a_failing_process_is_known_before_its_end,
              a_long_list_is_read_whole);
    suite_add_tcase(suite, tcase);
    return suite;
}
