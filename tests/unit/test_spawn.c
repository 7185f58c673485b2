/*
 * test_spawn.c - the state of a new process, and the error and cleanup when it cannot start.
 */
#include "check_main.h"
#include "spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const empty_env[] = {NULL};

/* execve() takes no const, as it is older than const. */
static struct spawn_request request_of(const char *path, const char *const *argv,
                                       const char *const *envp, int out, int err)
{
    return (struct spawn_request){.path = path,
                                  .argv = (char *const *)(const void *)argv,
                                  .envp = (char *const *)(const void *)envp,
                                  .stdio = {0, out, err}};
}

/* Run @argv with its output in a pipe and return the output. */
static void output_of(const char *const *argv, const char *const *envp, char *text, size_t size,
                      struct spawn_child *ret_child)
{
    int ends[2];
    struct ddp_error error = {0};
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    const struct spawn_request request = request_of(argv[0], argv, envp, ends[1], 2);
    ck_assert_msg(spawn_process(&request, ret_child, &error) == DDP_OK, "%s", error.msg);
    close(ends[1]);
    size_t used = 0;
    for (ssize_t len; (len = read(ends[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)len;
    text[used] = '\0';
    close(ends[0]);
}

/* We reap it, with exit code 0. */
static void ends_well(const struct spawn_child *child)
{
    int status;
    ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
    ck_assert_int_eq(status, 0);
    close(child->pidfd);
}

START_TEST(it_gets_arguments_environment_and_output)
{
    char text[256];
    static const char *const envp[] = {"ONE=1", "RANK=3", NULL};
    static const char *const argv[] = {"/bin/sh", "-c",          "echo \"$RANK-$ONE-$1\"",
                                       "name",    "an argument", NULL};
    struct spawn_child child;
    output_of(argv, envp, text, sizeof text, &child);
    ck_assert_str_eq(text, "3-1-an argument\n");
    ends_well(&child);
}
END_TEST

START_TEST(it_leads_a_session_of_its_own)
{
    char text[1024];
    static const char *const argv[] = {"/bin/cat", "/proc/self/stat", NULL};
    struct spawn_child child;
    output_of(argv, empty_env, text, sizeof text, &child);
    char expected[128];
    snprintf(expected, sizeof expected, "%d (cat) R %d %d %d 0 ", (int)child.pid, (int)getpid(),
             (int)child.pid, (int)child.pid);
    text[strlen(expected)] = '\0'; /* pid, name, state, parent, group, session, no terminal */
    ck_assert_str_eq(text, expected);
    ends_well(&child);
}
END_TEST

START_TEST(it_has_three_descriptors)
{
    char text[1024];
    int leaked = dup(0); /* not close-on-exec */
    ck_assert_int_ge(leaked, 3);
    ck_assert_int_eq(dup2(leaked, 200), 200);
    /* One digit per descriptor, without a process that opens others. */
    static const char *const argv[] = {
        "/bin/sh", "-c",
        "for fd in 0 1 2 3 4 5 6 7 8 9 200; do test -e /proc/$$/fd/$fd && echo $fd; done; true",
        NULL};
    struct spawn_child child;
    output_of(argv, empty_env, text, sizeof text, &child);
    ck_assert_str_eq(text, "0\n1\n2\n");
    ends_well(&child);
    close(leaked);
    close(200);
}
END_TEST

/* As descriptor 3, whatever number it has here, 3 itself included. */
START_TEST(it_gets_its_key)
{
    static const char *const argv[] = {
        "/bin/sh", "-c",
        "cat <&3; for fd in 4 5 6 7 8 9; do test -e /proc/$$/fd/$fd && echo $fd; "
        "done; true",
        NULL};
    static const int numbers[] = {3, 50};
    int ends[2];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        FILE *file = tmpfile();
        ck_assert_ptr_nonnull(file);
        ck_assert_int_ge(fputs("key\n", file), 0);
        rewind(file);
        int high = fcntl(fileno(file), F_DUPFD_CLOEXEC, 100);
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        struct spawn_request request = request_of(argv[0], argv, empty_env, ends[1], 2);
        request.key_fd = numbers[i];
        struct spawn_child child;
        int aside = fcntl(numbers[i], F_DUPFD_CLOEXEC, 100); /* Check may use it: no assertions */
        dup3(high, numbers[i], O_CLOEXEC);
        ddp_status status = spawn_process(&request, &child, NULL);
        if (aside >= 0)
            dup3(aside, numbers[i], O_CLOEXEC);
        else
            close(numbers[i]);
        ck_assert_int_eq(status, DDP_OK);
        close(ends[1]);
        char text[64] = "";
        size_t used = 0;
        for (ssize_t len; (len = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
            used += (size_t)len;
        ck_assert_str_eq(text, "key\n");
        ends_well(&child);
        close(ends[0]);
        close(aside);
        close(high);
    }
}
END_TEST

/* The two descriptors have each other's number. */
START_TEST(it_gets_key_and_page_in_their_places)
{
    static const char *const argv[] = {
        "/bin/sh", "-c", "echo key >&3; echo page >&4; test -e /proc/$$/fd/5 && echo 5 >&3; true",
        NULL};
    int key[2], page[2], aside[2];
    char text[64] = "";
    ck_assert_int_eq(pipe2(key, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(page, O_CLOEXEC), 0);
    int ends[] = {fcntl(key[0], F_DUPFD_CLOEXEC, 100), fcntl(key[1], F_DUPFD_CLOEXEC, 100),
                  fcntl(page[0], F_DUPFD_CLOEXEC, 100), fcntl(page[1], F_DUPFD_CLOEXEC, 100)};
    for (int i = 0; i < 2; i++) {
        close(key[i]);
        close(page[i]);
    }
    struct spawn_request request = request_of(argv[0], argv, empty_env, 1, 2);
    request.key_fd = SPAWN_LIFE_FD;
    request.life_fd = SPAWN_KEY_FD;
    struct spawn_child child;
    for (int i = 0; i < 2; i++) { /* Check may use them: no assertions */
        aside[i] = fcntl(SPAWN_KEY_FD + i, F_DUPFD_CLOEXEC, 100);
        dup3(i == 0 ? ends[3] : ends[1], SPAWN_KEY_FD + i, O_CLOEXEC);
    }
    ddp_status status = spawn_process(&request, &child, NULL);
    for (int i = 0; i < 2; i++) {
        if (aside[i] >= 0)
            dup3(aside[i], SPAWN_KEY_FD + i, O_CLOEXEC);
        else
            close(SPAWN_KEY_FD + i);
        close(aside[i]);
    }
    ck_assert_int_eq(status, DDP_OK);
    ends_well(&child);
    ck_assert_int_eq(read(ends[0], text, sizeof text), 4);
    ck_assert_mem_eq(text, "key\n", 4);
    ck_assert_int_eq(read(ends[2], text, sizeof text), 5);
    ck_assert_mem_eq(text, "page\n", 5);
    for (int i = 0; i < 4; i++)
        close(ends[i]);
}
END_TEST

START_TEST(it_gets_the_limit_that_it_is_given)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    static const char *const argv[] = {"/bin/sh", "-c", "ulimit -Sn; ulimit -Hn", NULL};
    const struct rlimit limit = {.rlim_cur = 64, .rlim_max = 128};
    struct spawn_request request = request_of(argv[0], argv, empty_env, ends[1], 2);
    request.nofile = &limit;
    struct rlimit before, after;
    getrlimit(RLIMIT_NOFILE, &before);
    struct spawn_child child;
    ck_assert_int_eq(spawn_process(&request, &child, NULL), DDP_OK);
    close(ends[1]);
    char text[64] = "";
    size_t used = 0;
    for (ssize_t len; (len = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)len;
    close(ends[0]);
    ck_assert_str_eq(text, "64\n128\n");
    getrlimit(RLIMIT_NOFILE, &after);
    ck_assert_uint_eq(after.rlim_cur, before.rlim_cur);
    ends_well(&child);
}
END_TEST

START_TEST(it_has_no_signal_blocked_or_ignored)
{
    sigset_t all, before;
    char text[4096];
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sig != SIGCHLD)
            signal(sig, SIG_IGN);
    static const char *const argv[] = {"/bin/cat", "/proc/self/status", NULL};
    struct spawn_child child;
    output_of(argv, empty_env, text, sizeof text, &child);
    ck_assert_ptr_nonnull(strstr(text, "\nSigBlk:\t0000000000000000\n"));
    /* glibc keeps 32 and 33 to itself: its posix_spawn starts children with both ignored, and its
     * sigaction does not change that. */
    const uint64_t glibcs_own = UINT64_C(3) << 31;
    const char *ignored = strstr(text, "\nSigIgn:\t");
    ck_assert_ptr_nonnull(ignored);
    ck_assert_uint_eq(strtoull(ignored + strlen("\nSigIgn:\t"), NULL, 16) & ~glibcs_own, 0);
    ck_assert_ptr_nonnull(strstr(text, "\nSigCgt:\t0000000000000000\n"));
    /* Nothing has changed in this process. */
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    ck_assert_int_eq(sigismember(&now, SIGTERM), 1);
    struct sigaction action;
    ck_assert_int_eq(sigaction(SIGTERM, NULL, &action), 0);
    ck_assert(action.sa_handler == SIG_IGN);
    sigprocmask(SIG_SETMASK, &before, NULL);
    ends_well(&child);
}
END_TEST

static void await_readable(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    while (poll(&pollfd, 1, -1) < 0)
        ck_assert_int_eq(errno, EINTR);
}

START_TEST(its_pidfd_tells_its_end_and_is_not_inherited)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct spawn_request request = request_of(argv[0], argv, empty_env, 1, 2);
    struct spawn_child child;
    ck_assert_int_eq(spawn_process(&request, &child, NULL), DDP_OK);
    ck_assert_int_ne(fcntl(child.pidfd, F_GETFD) & FD_CLOEXEC, 0);
    await_readable(child.pidfd);
    ends_well(&child);
}
END_TEST

/* A parent that starts a sleeper, reports its pid, and waits to be killed. */
static _Noreturn void parent_of_a_sleeper(int tell)
{
    static const char *const argv[] = {"/bin/sleep", "100", NULL};
    const struct spawn_request request = request_of(argv[0], argv, empty_env, 1, 2);
    struct spawn_child child;
    if (spawn_process(&request, &child, NULL) != DDP_OK ||
        write(tell, &child.pid, sizeof child.pid) != (ssize_t)sizeof child.pid)
        _exit(1);
    for (;;)
        pause();
}

START_TEST(it_dies_with_its_parent)
{
    int ends[2], status;
    pid_t sleeper;
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t parent = fork();
    ck_assert_int_ge(parent, 0);
    if (parent == 0)
        parent_of_a_sleeper(ends[1]);
    close(ends[1]);
    await_readable(ends[0]);
    ck_assert_int_eq(read(ends[0], &sleeper, sizeof sleeper), sizeof sleeper);
    kill(parent, SIGKILL);
    ck_assert_int_eq(waitpid(parent, &status, 0), parent);
    ck_assert_int_eq(waitpid(sleeper, &status, 0), sleeper);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ends[0]);
}
END_TEST

static int open_descriptors(void)
{
    int count = 0;
    DIR *entries = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(entries);
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count;
}

/* No process is left, and the error has @path and @reason in it. */
static void cannot_start(const char *path, int stderr_fd, const char *reason)
{
    static const char *const argv[] = {"name", NULL};
    const struct spawn_request request = request_of(path, argv, empty_env, 1, stderr_fd);
    struct spawn_child child = {.pid = 4711, .pidfd = 4712};
    struct ddp_error error = {0};
    int before = open_descriptors();
    ck_assert_int_ne(spawn_process(&request, &child, &error), DDP_OK);
    ck_assert_msg(strstr(error.msg, path) != NULL, "'%s' lacks '%s'", error.msg, path);
    ck_assert_msg(strstr(error.msg, reason) != NULL, "'%s' lacks '%s'", error.msg, reason);
    ck_assert_int_eq(child.pid, 4711);
    ck_assert_int_eq(child.pidfd, 4712);
    ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
    ck_assert_int_eq(errno, ECHILD);
    ck_assert_int_eq(open_descriptors(), before);
}

START_TEST(a_limit_that_was_reached_is_named)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int free_fd = dup(2);
    ck_assert_int_ge(free_fd, 0);
    limit.rlim_cur = (rlim_t)free_fd; /* the pidfd would be this one */
    close(free_fd);
    const rlim_t usual = limit.rlim_max;
    static const char *const argv[] = {"true", NULL};
    const struct spawn_request request = request_of("/bin/true", argv, empty_env, 1, 2);
    struct spawn_child child;
    struct ddp_error error = {0};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ddp_status status = spawn_process(&request, &child, &error);
    limit.rlim_cur = usual;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_ne(status, DDP_OK);
    ck_assert_int_eq(error.sys_errno, EMFILE);
    ck_assert_ptr_nonnull(strstr(error.msg, "'/bin/true'"));
    ck_assert_ptr_nonnull(strstr(error.msg, "ulimit -n"));
}
END_TEST

static void write_program(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(what_cannot_be_executed_is_explained)
{
    char dir[] = "/tmp/test_spawn_XXXXXX", plain[64], text[64], lost[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(plain, sizeof plain, "%s/plain", dir);
    snprintf(text, sizeof text, "%s/text", dir);
    snprintf(lost, sizeof lost, "%s/lost", dir);
    write_program(plain, "#!/bin/sh\n", 0600);
    write_program(text, "echo hello\n", 0700);
    write_program(lost, "#!/no/such/interpreter\n", 0700);

    cannot_start("/no/such/program", 2, "could not execute it: No such file or directory");
    cannot_start("", 2, "could not execute it: No such file or directory");
    cannot_start(plain, 2, "could not execute it: Permission denied");
    cannot_start(dir, 2, "could not execute it: Permission denied");
    cannot_start(text, 2, "neither a binary for this machine nor a script with a #! line");
    cannot_start(lost, 2, "the interpreter in its first line does not exist");
    unlink(plain);
    unlink(text);
    unlink(lost);
    rmdir(dir);
}
END_TEST

/* Kill the first child of the process whose only thread is @arg. */
static void *kill_child(void *arg)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", *(const pid_t *)arg);
    while (pid == 0) {
        FILE *file = fopen(path, "re");
        ck_assert_ptr_nonnull(file);
        if (fscanf(file, "%d", &pid) != 1)
            pid = 0;
        fclose(file);
        sched_yield();
    }
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    return NULL;
}

/* As the guard does. The next child uses the same stack. */
START_TEST(a_child_may_be_killed_before_it_runs_its_program)
{
    static const char *const argv[] = {"/bin/true", NULL};
    struct spawn_child child;
    struct ddp_error error = {0};
    int full[2], status;
    pid_t self = getpid();
    pthread_t killer;
    ck_assert_int_eq(pipe2(full, O_CLOEXEC | O_NONBLOCK), 0);
    while (write(full[1], "0", 1) == 1)
        ;
    ck_assert_int_eq(fcntl(full[1], F_SETFL, 0), 0); /* the child's first write will wait */
    struct spawn_request request = request_of(argv[0], argv, empty_env, 1, 2);
    request.cgroup_fd = full[1];
    ck_assert_int_eq(pthread_create(&killer, NULL, kill_child, &self), 0);
    ck_assert_msg(spawn_process(&request, &child, &error) == DDP_OK, "%s", error.msg);
    ck_assert_int_eq(pthread_join(killer, NULL), 0);
    ck_assert_int_eq(waitpid(child.pid, &status, 0), child.pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(child.pidfd);
    request.cgroup_fd = -1;
    ck_assert_msg(spawn_process(&request, &child, &error) == DDP_OK, "%s", error.msg);
    ends_well(&child);
    close(full[0]);
    close(full[1]);
}
END_TEST

START_TEST(bad_descriptors_are_explained)
{
    cannot_start("/bin/true", 900,
                 "could not connect standard input, output and error: Bad file descriptor");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("spawn");
    TCase *tcase = tcase_create("spawn");
    ADD_TESTS(tcase, it_gets_arguments_environment_and_output, it_leads_a_session_of_its_own,
              it_has_three_descriptors, it_gets_its_key, it_gets_key_and_page_in_their_places,
              it_gets_the_limit_that_it_is_given, it_has_no_signal_blocked_or_ignored,
              its_pidfd_tells_its_end_and_is_not_inherited, it_dies_with_its_parent,
              what_cannot_be_executed_is_explained, a_limit_that_was_reached_is_named,
              a_child_may_be_killed_before_it_runs_its_program, bad_descriptors_are_explained);
    suite_add_tcase(suite, tcase);
    return suite;
}
