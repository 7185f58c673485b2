/*
 * test_worker_proc.c - one worker from IDLE to IDLE along every arrow, with real processes.
 */
#include "check_main.h"
#include "looptest.h"
#include "mem.h"
#include "worker_proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static struct worker_proc worker;
static unsigned ready, over, unwatched;

static void on_ready(struct worker_proc *self)
{
    ck_assert_ptr_eq(self, &worker);
    int status;
    ready++;
    if (waitpid(self->pid, &status, WNOHANG) == self->pid)
        worker_proc_exited(self, status, self->started_us + 5);
}

static void on_main_over(struct worker_proc *self)
{
    ck_assert_ptr_eq(self, &worker);
    ck_assert(self->main_ended);
    over++;
}

static void on_unwatched(struct worker_proc *self)
{
    ck_assert_ptr_eq(self, &worker);
    ck_assert_int_eq(self->exit_watch.fd, -1);
    ck_assert_int_eq(self->main_watch.fd, -1);
    unwatched++;
}

static void init(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    worker_proc_init(&worker, 2);
    worker.rank = 7;
    worker.exit_ready = on_ready;
    worker.main_over = on_main_over;
    worker.unwatched = on_unwatched;
    ready = over = unwatched = 0;
}

static void finish(void)
{
    looptest_close(&loop);
    worker_proc_reset(&worker);
}

static struct spawn_child run(const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    static char *const envp[] = {NULL};
    const struct spawn_request request = {.path = "/bin/sh",
                                          .argv = (char *const *)(const void *)argv,
                                          .envp = envp,
                                          .stdio = {0, 1, 2}};
    struct spawn_child child;
    ck_assert_int_eq(spawn_process(&request, &child, NULL), DDP_OK);
    return child;
}

static void start(const char *script)
{
    struct spawn_child child = run(script);
    ck_assert_int_eq(worker_proc_started(&worker, &loop, &child, 1000, NULL), DDP_OK);
    ck_assert_uint_eq(worker.sm.state, WORKER_RUNNING);
    ck_assert(worker_proc_alive(&worker));
}

static bool is_unwatched(void *ctx)
{
    (void)ctx;
    return unwatched > 0;
}

START_TEST(the_table_is_valid)
{
    ck_assert(ddpi_sm_table_valid(&worker_sm));
}
END_TEST

START_TEST(a_new_worker_is_idle)
{
    ck_assert_uint_eq(worker.local_rank, 2);
    ck_assert_uint_eq(worker.rank, 7);
    ck_assert_uint_eq(worker.sm.state, WORKER_IDLE);
    ck_assert(!worker_proc_alive(&worker));
    ck_assert(!worker_proc_failed(&worker));
    worker_proc_stop(&worker, SIGTERM, SIGNAL_GROUP); /* no effect: pid 0 would be our own group */
    worker_proc_stop(&worker, SIGKILL, SIGNAL_GROUP);
    worker_proc_signal(&worker, SIGKILL, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_IDLE);
}
END_TEST

/* Run the worker to its end; it must end in @stopped_in. */
static void ends(unsigned stopped_in)
{
    looptest_run_until(&loop, is_unwatched, NULL);
    ck_assert_uint_eq(unwatched, 1);
    ck_assert_uint_eq(ready, 1);
    ck_assert_uint_eq(worker.sm.state, WORKER_EXITED);
    ck_assert_uint_eq(worker.stopped_in, stopped_in);
    ck_assert(!worker_proc_alive(&worker));
    ck_assert_uint_eq(worker.started_us, 1000);
    ck_assert_uint_eq(worker.ended_us, 1005);
    worker_proc_stop(&worker, SIGKILL, SIGNAL_GROUP); /* its pid may be reused by now */
    ck_assert_uint_eq(worker.sm.state, WORKER_EXITED);
}

START_TEST(success_by_itself)
{
    start("exit 0");
    ends(WORKER_RUNNING);
    ck_assert(!worker_proc_failed(&worker));
    ck_assert_int_eq(worker_proc_exit_code(&worker), 0);
}
END_TEST

START_TEST(failure_by_itself)
{
    start("exit 41");
    ends(WORKER_RUNNING);
    ck_assert(worker_proc_failed(&worker));
    ck_assert_int_eq(worker_proc_exit_code(&worker), 41);
}
END_TEST

START_TEST(death_by_itself)
{
    start("kill -SEGV $$");
    ends(WORKER_RUNNING);
    ck_assert(worker_proc_failed(&worker));
    ck_assert_int_eq(worker_proc_exit_code(&worker), 128 + SIGSEGV);
}
END_TEST

START_TEST(stopped)
{
    start("exec sleep 100");
    worker_proc_stop(&worker, SIGTERM, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_STOPPING);
    worker_proc_stop(&worker, SIGTERM, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_STOPPING);
    ends(WORKER_STOPPING);
    ck_assert_int_eq(worker_proc_exit_code(&worker), 128 + SIGTERM);
}
END_TEST

/* It was about to end when it was told to. */
START_TEST(stopped_too_late)
{
    siginfo_t info;
    start("exit 41");
    ck_assert_int_eq(waitid(P_PID, (id_t)worker.pid, &info, WEXITED | WNOWAIT), 0);
    worker_proc_stop(&worker, SIGTERM, SIGNAL_MAIN);
    ck_assert_uint_eq(worker.sm.state, WORKER_RUNNING);
    worker_proc_stop(&worker, SIGKILL, SIGNAL_GROUP);
    ends(WORKER_RUNNING);
    ck_assert_int_eq(worker_proc_exit_code(&worker), 41);
}
END_TEST

/* The shell ignores SIGTERM from now on. */
static bool ignores_sigterm(void *ctx)
{
    char path[64], text[4096], *line;
    uint64_t ignored = 0;
    (void)ctx;
    snprintf(path, sizeof path, "/proc/%d/status", (int)worker.pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    if ((line = strstr(text, "\nSigIgn:")) != NULL)
        ignored = strtoull(line + 8, NULL, 16);
    return (ignored >> (SIGTERM - 1) & 1) != 0;
}

START_TEST(killed_after_stopping)
{
    start("trap '' TERM; while :; do sleep 100; done");
    looptest_run_until(&loop, ignores_sigterm, NULL);
    worker_proc_stop(&worker, SIGTERM, SIGNAL_GROUP);
    worker_proc_stop(&worker, SIGKILL, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_KILLING);
    worker_proc_stop(&worker, SIGTERM, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_KILLING);
    ck_assert(worker_proc_alive(&worker));
    looptest_run_until(&loop, is_unwatched, NULL);
    ck_assert_uint_eq(worker.stopped_in, WORKER_KILLING);
}
END_TEST

START_TEST(killed_at_once)
{
    start("exec sleep 100");
    worker_proc_stop(&worker, SIGKILL, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_KILLING);
    ends(WORKER_KILLING);
    ck_assert_int_eq(worker_proc_exit_code(&worker), 128 + SIGKILL);
}
END_TEST

START_TEST(forwarding_is_no_move)
{
    start("exec sleep 100");
    worker_proc_signal(&worker, SIGUSR1, SIGNAL_GROUP);
    ck_assert_uint_eq(worker.sm.state, WORKER_RUNNING);
    ends(WORKER_RUNNING);
    ck_assert_int_eq(worker_proc_exit_code(&worker), 128 + SIGUSR1);
}
END_TEST

START_TEST(the_whole_group_is_signalled)
{
    int ends_of_pipe[2];
    char byte;
    ck_assert_int_eq(pipe2(ends_of_pipe, O_CLOEXEC), 0);
    int saved = dup(STDOUT_FILENO);
    dup2(ends_of_pipe[1], STDOUT_FILENO);
    start("sleep 100 & echo; wait");
    dup2(saved, STDOUT_FILENO);
    close(ends_of_pipe[1]);
    ck_assert_int_eq(read(ends_of_pipe[0], &byte, 1), 1);
    worker_proc_stop(&worker, SIGTERM, SIGNAL_GROUP);
    ck_assert_int_eq(read(ends_of_pipe[0], &byte, 1), 0); /* the sleep has ended too */
    ends(WORKER_STOPPING);
    close(ends_of_pipe[0]);
    close(saved);
}
END_TEST

static bool shell_waits(void *ctx)
{
    (void)ctx;
    return main_program_of(worker.pid, SIGTERM) != worker.pid;
}

START_TEST(a_stop_is_for_the_main_program)
{
    static const char *const scripts[] = {"exec sleep 100", "sleep 100; sleep 100",
                                          "sh -c 'sleep 100; true'; sleep 100"};
    for (unsigned n = 0; n < 2 * sizeof scripts / sizeof *scripts; n++) {
        bool twice = n % 2 == 1, by_shell = n / 2 > 0;
        ready = over = unwatched = 0;
        start(scripts[n / 2]);
        if (by_shell)
            looptest_run_until(&loop, shell_waits, NULL);
        worker_proc_stop(&worker, SIGTERM, SIGNAL_MAIN);
        if (twice) /* this one may be for the shell, which then may end first */
            worker_proc_stop(&worker, SIGTERM, SIGNAL_MAIN);
        ends(WORKER_STOPPING);
        ck_assert_uint_le(over, by_shell);
        ck_assert(twice || over == by_shell);
        ck_assert_int_eq(worker_proc_exit_code(&worker), 128 + SIGTERM);
        worker_proc_reset(&worker);
    }
}
END_TEST

START_TEST(a_shell_that_is_stopped)
{
    int status;
    start("sleep 100; sleep 100");
    looptest_run_until(&loop, shell_waits, NULL);
    ck_assert(!worker_proc_is_stopped(&worker));
    ck_assert_int_eq(kill(worker.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(worker.pid, &status, WUNTRACED), worker.pid);
    ck_assert(WIFSTOPPED(status));
    ck_assert_int_ne(main_program_of(worker.pid, SIGTERM), worker.pid); /* that one runs */
    ck_assert(worker_proc_is_stopped(&worker));
    worker_proc_stop(&worker, SIGTERM, SIGNAL_MAIN);
    ends(WORKER_STOPPING);
}
END_TEST

START_TEST(a_worker_is_used_again)
{
    int before = looptest_open_fds();
    for (int i = 0; i < 3; i++) {
        start("exit 3");
        looptest_run_until(&loop, is_unwatched, NULL);
        ready = unwatched = 0;
        worker.prefix = ddpi_strdup("[7]:");
        worker.error_file = ddpi_strdup("");
        worker.log_files[1] = ddpi_strdup("log");
        worker_proc_reset(&worker);
        ck_assert_uint_eq(worker.sm.state, WORKER_IDLE);
        ck_assert(!worker_proc_failed(&worker));
        ck_assert_ptr_null(worker.prefix);
        ck_assert_ptr_null(worker.log_files[1]);
        worker_proc_reset(&worker);
    }
    ck_assert_int_eq(looptest_open_fds(), before);
}
END_TEST

/* The loop refuses a descriptor that cannot be polled. The process runs nevertheless. */
START_TEST(a_worker_that_cannot_be_watched_leaks_nothing)
{
    int before = looptest_open_fds(), status;
    struct spawn_child child = run("exec sleep 100");
    struct ddp_error error = {0};
    close(child.pidfd);
    child.pidfd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ne(worker_proc_started(&worker, &loop, &child, 1000, &error), DDP_OK);
    ck_assert_int_ne(error.msg[0], '\0');
    ck_assert(worker_proc_alive(&worker));
    worker_proc_stop(&worker, SIGKILL, SIGNAL_GROUP);
    ck_assert_int_eq(waitpid(child.pid, &status, 0), child.pid);
    worker_proc_exited(&worker, status, 2000);
    ck_assert_int_eq(looptest_open_fds(), before);
    ck_assert(!worker_proc_watched(&worker));
}
END_TEST

/* Unwatched while it runs, as for a process that is stuck in the kernel. */
START_TEST(a_worker_that_is_left_behind_leaves_no_handle)
{
    int before = looptest_open_fds();
    start("exec sleep 100");
    worker_proc_unwatch(&worker);
    worker_proc_unwatch(&worker);
    looptest_run_until(&loop, is_unwatched, NULL);
    ck_assert_uint_eq(unwatched, 1);
    ck_assert_uint_eq(ready, 0);
    ck_assert_int_eq(looptest_open_fds(), before);
    kill(worker.pid, SIGKILL);
    ck_assert_int_eq(waitpid(worker.pid, NULL, 0), worker.pid);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("worker_proc");
    TCase *tcase = tcase_create("worker_proc");
    tcase_add_checked_fixture(tcase, init, finish);
    ADD_TESTS(tcase, the_table_is_valid, a_new_worker_is_idle, success_by_itself, failure_by_itself,
              death_by_itself, stopped, stopped_too_late, killed_after_stopping, killed_at_once,
              forwarding_is_no_move, the_whole_group_is_signalled, a_stop_is_for_the_main_program,
              a_shell_that_is_stopped, a_worker_is_used_again,
              a_worker_that_cannot_be_watched_leaks_nothing,
              a_worker_that_is_left_behind_leaves_no_handle);
    suite_add_tcase(suite, tcase);
    return suite;
}
