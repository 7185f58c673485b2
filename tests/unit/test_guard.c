/*
 * test_guard.c - the guard passes on exit codes and signals, and ends what a dead agent left. The
 * process that each test forks becomes the guard.
 */
#include "check_main.h"
#include "clock.h"
#include "guard.h"
#include "reap.h"
#include "sidecar.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

static struct guard_duties duties;
static struct spawn_request beside; /* duties.sidecar, of some tests */
static int said[2]; /* from agent and orphans to the test; end-of-file: they have ended */

static bool ignore_children;
static int guards_stderr = -1; /* -1: /dev/null */

static _Noreturn void split_and_run(void (*agent)(const struct guard_agent *self))
{
    struct guard_agent self;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(guards_stderr >= 0 ? guards_stderr : null, STDERR_FILENO);
    close(said[0]);
    beside.stdio[1] = said[1];
    if (ignore_children)
        signal(SIGCHLD, SIG_IGN);
    if (guard_split(&duties, &self, NULL) == DDP_OK)
        agent(&self);
    _exit(99);
}

/* Forks a process that becomes the guard of @agent. */
static pid_t start_guard(void (*agent)(const struct guard_agent *self))
{
    ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
    pid_t guard = fork();
    ck_assert_int_ge(guard, 0);
    if (guard == 0)
        split_and_run(agent);
    close(said[1]);
    return guard;
}

static void exits_with(pid_t guard, int code)
{
    int status;
    ck_assert_int_eq(waitpid(guard, &status, 0), guard);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), code);
}

static void say(char what)
{
    if (write(said[1], &what, 1) != 1)
        _exit(98);
}

static char hear(void)
{
    struct pollfd pollfd = {.fd = said[0], .events = POLLIN};
    char what = '-';
    ck_assert_int_eq(poll(&pollfd, 1, -1), 1);
    return read(said[0], &what, 1) == 1 ? what : '.';
}

static void exit_with_seven(const struct guard_agent *self)
{
    (void)self;
    _exit(7);
}

START_TEST(the_exit_code_is_passed_on)
{
    exits_with(start_guard(exit_with_seven), 7);
}
END_TEST

/* Some supervisors start their children with SIGCHLD ignored: then nothing would be left to wait
 * for. */
START_TEST(an_ignored_child_signal_does_no_harm)
{
    ignore_children = true; /* in the guard, which the test waits for */
    exits_with(start_guard(exit_with_seven), 7);
}
END_TEST

/* The agent is killed, with a child in a session of its own that ignores what it can. */
static void leave_an_orphan(const struct guard_agent *self)
{
    (void)self;
    if (fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        say('o');
        for (;;)
            pause();
    }
    raise(SIGKILL);
}

START_TEST(what_a_killed_agent_left_is_ended)
{
    pid_t guard = start_guard(leave_an_orphan);
    exits_with(guard, 128 + SIGKILL);
    char last = hear();
    ck_assert(last == '.' || (last == 'o' && hear() == '.'));
}
END_TEST

static void wait_for_signal(const struct guard_agent *self)
{
    sigset_t set;
    (void)self;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    say(getpgrp() == getpid() ? 'g' : 'n');
    _exit(sigwaitinfo(&set, NULL));
}

START_TEST(signals_are_forwarded)
{
    static const int signals[] = {SIGUSR1, SIGTERM};
    for (int i = 0; i < 2; i++) {
        pid_t guard = start_guard(wait_for_signal);
        ck_assert_int_eq(hear(), 'g');
        kill(guard, signals[i]);
        exits_with(guard, signals[i]);
        close(said[0]);
    }
}
END_TEST

static void wait_for_the_guards_end(const struct guard_agent *self)
{
    char byte;
    say('r');
    say(read(self->guard_fd, &byte, 1) == 0 ? 'e' : 'x');
    _exit(0);
}

START_TEST(the_agent_sees_the_end_of_the_guard)
{
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t guard = start_guard(wait_for_the_guards_end);
    int status;
    ck_assert_int_eq(hear(), 'r');
    kill(guard, SIGKILL);
    ck_assert_int_eq(waitpid(guard, &status, 0), guard);
    ck_assert_int_eq(hear(), 'e');
    ck_assert_int_eq(hear(), '.');
    ck_assert_int_gt(waitpid(-1, &status, 0), 0); /* the agent, which we have adopted */
    ck_assert_int_eq(waitpid(-1, &status, 0), -1);
}
END_TEST

static void say_pid(bool of_agent)
{
    pid_t own = of_agent ? -getpid() : getpid();
    if (write(said[1], &own, sizeof own) != sizeof own)
        _exit(98);
}

/* The agent has announced that it stops, but may not have stopped yet. */
static void await_stopped(pid_t pid)
{
    char path[32], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    while (state != 'T') {
        ck_assert_msg(state != 'Z', "the agent has ended");
        FILE *file = fopen(path, "r");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        fclose(file);
        state = strrchr(line, ')')[2];
        poll(NULL, 0, 10);
    }
}

static void be_stopped_alone(const struct guard_agent *self)
{
    char byte;
    say_pid(true);
    raise(SIGSTOP);
    say(read(self->guard_fd, &byte, 1) == 0 ? 'e' : 'x');
    _exit(0);
}

/* While a parent in the same session can continue it, the kernel leaves a stopped group alone. */
START_TEST(a_stopped_agent_goes_on_when_the_guard_is_killed)
{
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t guard = start_guard(be_stopped_alone);
    int status;
    pid_t agent;
    ck_assert_int_eq(read(said[0], &agent, sizeof agent), sizeof agent);
    await_stopped(-agent);
    kill(guard, SIGKILL);
    ck_assert_int_eq(waitpid(guard, &status, 0), guard);
    ck_assert_int_eq(hear(), 'e');
    ck_assert_int_gt(waitpid(-1, &status, 0), 0);
}
END_TEST

static void report_mask(const struct guard_agent *self)
{
    (void)self;
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    bool right = sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGCHLD) == 1 &&
                 sigismember(&now, SIGTSTP) == 0;
    _exit(right ? 0 : 1);
}

START_TEST(no_signal_is_lost_before_the_agent_is_ready)
{
    sigset_t users;
    sigemptyset(&users);
    sigaddset(&users, SIGUSR2);
    sigprocmask(SIG_BLOCK, &users, NULL);
    exits_with(start_guard(report_mask), 0);
}
END_TEST

/* ---- an agent that has a store ---- */

static int link_ends[2]; /* the agent's connection, and its peer: the test */

/* The agent is killed while an orphan lives that only the guard can end. */
static void hand_over_and_die(const struct guard_agent *self)
{
    close(link_ends[1]);
    guard_hold_socket(self, link_ends[0]);
    leave_an_orphan(self);
}

START_TEST(the_connection_ends_after_all_else)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link_ends), 0);
    pid_t guard = start_guard(hand_over_and_die);
    close(link_ends[0]);
    char byte;
    ck_assert_int_eq(read(link_ends[1], &byte, 1), 0);
    struct pollfd orphan = {.fd = said[0], .events = 0};
    ck_assert_int_eq(poll(&orphan, 1, 0), 1); /* the orphan ended first */
    ck_assert_int_ne(orphan.revents & POLLHUP, 0);
    exits_with(guard, 128 + SIGKILL);
    close(link_ends[1]);
}
END_TEST

static void keep_pending_input(const struct guard_agent *self)
{
    close(link_ends[1]);
    guard_hold_socket(self, link_ends[0]);
    raise(SIGKILL);
}

/* Over TCP, closing with unread data sends a reset, which is no orderly end. */
START_TEST(an_unread_message_does_not_spoil_the_end)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, len), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    link_ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(link_ends[0], (struct sockaddr *)&at, len), 0);
    link_ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(link_ends[1], 0);
    ck_assert_int_eq(write(link_ends[1], "unread", 6), 6);
    pid_t guard = start_guard(keep_pending_input);
    close(link_ends[0]);
    exits_with(guard, 128 + SIGKILL);
    char byte;
    ck_assert_int_eq(read(link_ends[1], &byte, 1), 0); /* an end, no ECONNRESET */
    close(link_ends[1]);
    close(listener);
}
END_TEST

/* Workers say so when they have said who they are: before that the fence may not end them. */
static int ready[2];

static void say_ready(void)
{
    say_pid(false);
    if (write(ready[1], "", 1) != 1)
        _exit(92);
}

static void set_fence_behind(const struct guard_agent *self, int workers)
{
    char byte;
    for (int i = 0; i < workers; i++)
        if (read(ready[0], &byte, 1) != 1)
            _exit(91);
    guard_set_fence(self, ddpi_monotonic_ms() + 300);
}

/* Two workers, one with a child in a session of its own; then the agent is stopped. */
static void be_stopped(const struct guard_agent *self)
{
    if (reap_become_subreaper() != 0 || pipe2(ready, O_CLOEXEC) != 0)
        _exit(97);
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            if (i == 0 && fork() == 0)
                setsid();
            say_ready();
            for (;;)
                pause();
        }
    set_fence_behind(self, 3);
    say_pid(true);
    raise(SIGSTOP);
    _exit(5);
}

START_TEST(workers_of_a_stopped_agent_are_ended_in_time)
{
    enum { PROCESSES = 4 };
    pid_t agent = 0, pid;
    struct pollfd ends[PROCESSES];
    unsigned workers = 0;
    pid_t guard = start_guard(be_stopped);
    for (int i = 0; i < PROCESSES; i++) {
        ck_assert_int_eq(read(said[0], &pid, sizeof pid), sizeof pid);
        if (pid < 0)
            agent = -pid;
        else
            ends[workers++] = (struct pollfd){(int)syscall(SYS_pidfd_open, pid, 0), POLLIN, 0};
    }
    for (unsigned i = 0; i < workers; i++) {
        ck_assert_int_eq(poll(&ends[i], 1, -1), 1);
        close(ends[i].fd);
    }
    await_stopped(agent);
    ck_assert_int_eq(kill(agent, SIGCONT), 0); /* it still exists, and continues */
    exits_with(guard, 5);
}
END_TEST

/* A worker whose first thread has ended: the kernel shows it as a zombie. */
static void *go_on(void *arg)
{
    (void)arg;
    say_ready();
    for (;;)
        pause();
    return NULL;
}

static void be_stopped_with_a_headless_worker(const struct guard_agent *self)
{
    if (pipe2(ready, O_CLOEXEC) != 0)
        _exit(97);
    if (fork() == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, go_on, NULL) != 0)
            _exit(96);
        pthread_exit(NULL);
    }
    set_fence_behind(self, 1);
    say_pid(true);
    raise(SIGSTOP);
    _exit(5);
}

START_TEST(a_worker_without_its_first_thread_is_ended_in_time)
{
    pid_t pids[2];
    pid_t guard = start_guard(be_stopped_with_a_headless_worker);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(read(said[0], &pids[i], sizeof pids[i]), sizeof pids[i]);
    pid_t agent = pids[0] < 0 ? -pids[0] : -pids[1], worker = pids[0] < 0 ? pids[1] : pids[0];
    struct pollfd end = {(int)syscall(SYS_pidfd_open, worker, 0), POLLIN, 0};
    ck_assert_int_eq(poll(&end, 1, -1), 1);
    await_stopped(agent);
    ck_assert_int_eq(kill(agent, SIGCONT), 0);
    exits_with(guard, 5);
    close(end.fd);
}
END_TEST

/* ---- a guard without a reader ---- */

/* Make a full pipe and return its writing end. */
static int make_full_pipe(int ends[2])
{
    char page[4096] = {0};
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    while (write(ends[1], page, sizeof page) > 0)
        continue;
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0);
    return ends[1];
}

START_TEST(a_full_pipe_does_not_hold_it)
{
    int ends[2];
    guards_stderr = make_full_pipe(ends);
    pid_t guard = start_guard(leave_an_orphan);
    exits_with(guard, 128 + SIGKILL);
    ck_assert_int_eq(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0); /* other processes write there too */
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* The wait status of a guard that runs in the background of a terminal that stops background
 * writers. */
static int run_in_the_background(int terminal)
{
    struct termios mode;
    int status;
    if (setsid() < 0 || ioctl(terminal, TIOCSCTTY, 0) != 0 || tcgetattr(terminal, &mode) != 0)
        _exit(95);
    mode.c_lflag |= TOSTOP;
    if (tcsetattr(terminal, TCSANOW, &mode) != 0)
        _exit(94);
    guards_stderr = terminal;
    pid_t guard = fork();
    if (guard == 0) {
        setpgid(0, 0);
        split_and_run(leave_an_orphan);
    }
    setpgid(guard, guard);
    return waitpid(guard, &status, WUNTRACED) == guard ? status : -1;
}

START_TEST(a_terminal_does_not_stop_it)
{
    int terminal, keyboard, status;
    char text[512];
    ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
    ck_assert_int_eq(openpty(&keyboard, &terminal, NULL, NULL, NULL), 0);
    pid_t leader = fork();
    if (leader == 0) {
        status = run_in_the_background(terminal);
        _exit(status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 93);
    }
    exits_with(leader, 128 + SIGKILL);
    ssize_t len = read(keyboard, text, sizeof text - 1);
    ck_assert_int_gt(len, 0);
    text[len] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "the agent was killed by SIGKILL"));
    close(keyboard);
    close(terminal);
}
END_TEST

/* The fence moves while the store answers, and is removed when no worker runs. */
static void put_it_off(const struct guard_agent *self)
{
    if (fork() == 0) {
        close(said[1]);
        for (;;)
            pause();
    }
    enum { NEAR_MS = 2000, FAR_MS = 600000 }; /* this process may be delayed for NEAR_MS */
    uint64_t now = ddpi_monotonic_ms();
    guard_set_fence(self, now + NEAR_MS);
    guard_set_fence(self, now + FAR_MS);
    poll(NULL, 0, NEAR_MS + 100);
    guard_set_fence(self, ddpi_monotonic_ms() + NEAR_MS);
    guard_set_fence(self, 0);
    poll(NULL, 0, NEAR_MS + 100);
    _exit(waitpid(-1, NULL, WNOHANG) == 0 ? 6 : 7);
}

START_TEST(a_fence_that_moves_kills_no_worker)
{
    exits_with(start_guard(put_it_off), 6);
}
END_TEST

/* ---- a process beside the agent ---- */

/* It says s when it stands, and t when it is told to end. */
static const char standing[] = "trap 'kill $!; printf t; exit 0' PWR; sleep 1000 & printf s; wait";

static void request_of(const char *script, struct spawn_request *ret)
{
    static char shell[] = "sh", option[] = "-c", text[128];
    static char *words[] = {shell, option, text, NULL};
    snprintf(text, sizeof text, "%s", script);
    *ret = (struct spawn_request){
        .path = "/bin/sh", .argv = words, .envp = environ, .stdio = {0, 1, STDERR_FILENO}};
}

static pid_t start_guard_with(const char *script, void (*agent)(const struct guard_agent *self))
{
    request_of(script, &beside);
    duties.sidecar = &beside;
    return start_guard(agent);
}

static void both_stand(void)
{
    char first = hear(), second = hear();
    ck_assert((first == 'g' && second == 's') || (first == 's' && second == 'g'));
}

static void wait_and_leave_it(const struct guard_agent *self)
{
    guard_keep_sidecar(self, GUARD_SIDECAR_STAYS);
    wait_for_signal(self);
}

static void wait_and_be_killed(const struct guard_agent *self)
{
    sigset_t set;
    guard_keep_sidecar(self, GUARD_SIDECAR_STAYS);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    say('g');
    sigwaitinfo(&set, NULL);
    raise(SIGKILL);
}

START_TEST(a_sidecar_ends_with_the_agent)
{
    static void (*const agents[])(const struct guard_agent *) = {wait_for_signal,
                                                                 wait_and_be_killed};
    static const int codes[] = {SIGUSR1, 128 + SIGKILL};
    for (int i = 0; i < 2; i++) {
        pid_t guard = start_guard_with(standing, agents[i]);
        both_stand();
        kill(guard, SIGUSR1);
        ck_assert_int_eq(hear(), 't');
        ck_assert_int_eq(hear(), '.');
        exits_with(guard, codes[i]);
        close(said[0]);
    }
}
END_TEST

START_TEST(a_sidecar_may_outlive_the_agent)
{
    int text[2];
    char byte;
    ck_assert_int_eq(pipe2(text, O_CLOEXEC), 0);
    guards_stderr = text[1];
    pid_t guard = start_guard_with(standing, wait_and_leave_it);
    close(text[1]);
    both_stand();
    kill(guard, SIGUSR1);
    ck_assert_int_eq(read(text[0], &byte, 1), 1); /* "this node has left the job ..." */
    ck_assert_int_eq(waitpid(guard, NULL, WNOHANG), 0);
    kill(guard, SIGTERM);
    ck_assert_int_eq(hear(), 't');
    ck_assert_int_eq(hear(), '.');
    exits_with(guard, SIGUSR1);
    close(text[0]);
}
END_TEST

START_TEST(there_is_no_agent_where_the_sidecar_cannot_run)
{
    exits_with(start_guard_with("exit 78", wait_for_signal), 78);
}
END_TEST

START_TEST(a_sidecar_that_dies_is_started_again)
{
    unsigned starts = 0;
    pid_t guard = start_guard_with("printf s; kill -9 $$", wait_for_signal);
    while (starts < 2)
        starts += hear() == 's';
    kill(guard, SIGTERM);
    exits_with(guard, SIGTERM);
}
END_TEST

static void await_end(struct sidecar *sidecar)
{
    int status;
    pid_t pid = sidecar->pid;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    sidecar_reaped(sidecar, pid, status, 5100);
}

/* The first failure, if it comes soon, says that it cannot run here; a later one does not. */
START_TEST(how_a_sidecar_ends)
{
    static const struct {
        const char *script;
        bool again;
        enum sidecar_state state;
        uint64_t due_ms;
    } rows[] = {
        {"exit 0", false, SIDECAR_WAITING, 65100},     {"exit 0", true, SIDECAR_WAITING, 65100},
        {"exit 3", false, SIDECAR_FAILED, UINT64_MAX}, {"exit 3", true, SIDECAR_WAITING, 65100},
        {"kill -9 $$", false, SIDECAR_WAITING, 6000},  {"kill -9 $$", true, SIDECAR_WAITING, 6000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sidecar sidecar = {.request = &beside, .again = rows[i].again};
        request_of(rows[i].script, &beside);
        ck_assert_uint_eq(sidecar_due_ms(&sidecar), 0);
        ck_assert(sidecar_run(&sidecar, 5000, NULL));
        ck_assert_int_eq(sidecar.state, SIDECAR_RUNNING);
        await_end(&sidecar);
        ck_assert_int_eq(sidecar.state, rows[i].state);
        ck_assert_uint_eq(sidecar_due_ms(&sidecar), rows[i].due_ms);
        ck_assert(sidecar.state != SIDECAR_FAILED || sidecar.code == 3);
    }
}
END_TEST

START_TEST(a_sidecar_that_is_not_there)
{
    struct ddp_error err;
    struct sidecar sidecar = {.request = &beside};
    request_of("", &beside);
    beside.path = "/nowhere/ddprund";
    ck_assert(!sidecar_run(&sidecar, 5000, &err));
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/ddprund"));
    ck_assert_int_eq(sidecar.state, SIDECAR_FAILED);
    ck_assert_int_eq(sidecar.code, 78);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("guard");
    TCase *tcase = tcase_create("guard");
    ADD_TESTS(
        tcase, the_exit_code_is_passed_on, an_ignored_child_signal_does_no_harm,
        what_a_killed_agent_left_is_ended, signals_are_forwarded,
        the_agent_sees_the_end_of_the_guard, a_stopped_agent_goes_on_when_the_guard_is_killed,
        no_signal_is_lost_before_the_agent_is_ready, the_connection_ends_after_all_else,
        an_unread_message_does_not_spoil_the_end, workers_of_a_stopped_agent_are_ended_in_time,
        a_worker_without_its_first_thread_is_ended_in_time, a_fence_that_moves_kills_no_worker,
        a_full_pipe_does_not_hold_it, a_terminal_does_not_stop_it, a_sidecar_ends_with_the_agent,
        a_sidecar_may_outlive_the_agent, there_is_no_agent_where_the_sidecar_cannot_run,
        a_sidecar_that_dies_is_started_again, how_a_sidecar_ends, a_sidecar_that_is_not_there);
    suite_add_tcase(suite, tcase);
    return suite;
}
