/*
 * test_warm_process.c - the warm process, played by shell scripts, and forks from one that is
 * played by a thread: whatever it says or does, workers start.
 */
#include "check_main.h"
#include "looptest.h"
#include "reap.h"
#include "warm_fork.h"
#include "warm_process.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the process ---- */

static uv_loop_t loop;
static struct warm_process warm;
static char said[2048];
static unsigned settled;

static void on_say(void *ctx, const char *line)
{
    (void)ctx;
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

static void on_settled(void *ctx)
{
    (void)ctx;
    settled++;
}

static char folder[40], program[64];

static void write_program(const char *script)
{
    snprintf(folder, sizeof folder, "/tmp/test_warm_process.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/python3", folder);
    FILE *file = fopen(program, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(program, 0700), 0);
}

static void begin(const char *script)
{
    static char *argv[] = {program, (char *)(uintptr_t) "-u", (char *)(uintptr_t) "train.py", NULL};
    static char *envp[] = {NULL};
    const struct warm_hooks hooks = {NULL, on_say, on_settled};
    const struct warm_config config = {
        .modules = "torch", .program = program, .argv = argv, .envp = envp, .own = "RANK,"};
    write_program(script);
    said[0] = '\0';
    settled = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(warm_process_open(&warm, &loop, &config, &hooks, NULL), DDP_OK);
    warm_process_begin(&warm);
    ck_assert(warm_process_busy(&warm));
    warm_process_begin(&warm); /* no second one */
}

static void note_exit(void *ctx, pid_t pid, int wait_status)
{
    (void)ctx;
    warm_process_exited(&warm, pid, wait_status);
}

static bool is_in(void *ctx)
{
    const enum warm_state *state = ctx;
    if (!warm_process_busy(&warm))
        reap_collect(note_exit, NULL);
    return warm.sm.state == *state && (warm.pid == 0) == (*state != WARM_READY);
}

static void await(enum warm_state state)
{
    looptest_run_until(&loop, is_in, &state);
    ck_assert_uint_eq(settled, 1);
}

static void finish(void)
{
    warm_process_close(&warm);
    looptest_close(&loop);
    size_t ended;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    ck_assert(reap_sweep(5000, NULL, &ended));
    unlink(program);
    rmdir(folder);
}

START_TEST(the_table_is_valid)
{
    ck_assert(ddpi_sm_table_valid(&warm_sm));
}
END_TEST

START_TEST(without_modules_there_is_none)
{
    const struct warm_config config = {0};
    const struct warm_hooks hooks = {NULL, on_say, on_settled};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(warm_process_open(&warm, &loop, &config, &hooks, NULL), DDP_OK);
    warm_process_begin(&warm);
    ck_assert(!warm_process_busy(&warm));
    ck_assert_int_eq(warm_process_socket(&warm), 0);
    ck_assert_int_eq(warm_process_pid(&warm), 0);
    warm_process_end(&warm);
    warm_process_close(&warm);
    looptest_close(&loop);
}
END_TEST

START_TEST(it_gets_its_program_and_the_command_line)
{
    begin("head -c 5 <&3 | grep -q '^\"\"\"wa' && test \"$(head -c 5 <&3)\" = RANK, && "
          "test \"$1 $2 $4 $5\" = '-u -c torch train.py' && "
          "printf 'ready 1234 torch,numpy' >&3; exec sleep 600");
    ck_assert_int_eq(warm_process_socket(&warm), 0);
    await(WARM_READY);
    ck_assert_uint_eq(warm.import_ms, 1234);
    ck_assert_str_eq(warm.names, "torch,numpy");
    ck_assert_str_eq(said, "");
    int socket = warm_process_socket(&warm);
    ck_assert_int_ge(socket, SPAWN_FREE_FD);
    close(socket);
    ck_assert(!warm_process_exited(&warm, warm_process_pid(&warm) + 1, 0));
    finish();
}
END_TEST

static const struct {
    const char *script;
    enum warm_state end;
    const char *says;
} ends[] = {
    {"printf 'failed ImportError: x' >&3; exec sleep 600", WARM_REFUSED,
     "cannot preload 'torch': ImportError: x; workers start without it, as they do without "
     "--preload\n"},
    {"printf 'nonsense' >&3; exec sleep 600", WARM_REFUSED,
     "cannot preload 'torch': the process that imports it has sent something unexpected; workers "
     "start without it, as they do without --preload\n"},
    {"printf 'ready soon' >&3; exec sleep 600", WARM_REFUSED,
     "cannot preload 'torch': the process that imports it has sent something unexpected; workers "
     "start without it, as they do without --preload\n"},
    {"exit 3", WARM_ABSENT,
     "the process that has 'torch' imported exited with code 3; the next one starts with the next "
     "workers\n"},
    {"kill -SEGV $$", WARM_ABSENT,
     "the process that has 'torch' imported was killed by SIGSEGV; the next one starts with the "
     "next workers\n"},
    {"exec 3>&-; kill -KILL $$", WARM_ABSENT,
     "the process that has 'torch' imported was killed by SIGKILL; the next one starts with the "
     "next workers\n"},
};

START_TEST(it_fails_with_a_sentence)
{
    begin(ends[_i].script);
    await(ends[_i].end);
    ck_assert_str_eq(said, ends[_i].says);
    ck_assert_int_eq(warm_process_socket(&warm), 0);
    warm_process_begin(&warm);
    ck_assert_int_eq(warm_process_busy(&warm), ends[_i].end == WARM_ABSENT);
    if (ends[_i].end == WARM_ABSENT) { /* it says the same again */
        settled = 0;
        await(WARM_ABSENT);
    }
    finish();
}
END_TEST

START_TEST(a_program_that_cannot_be_started)
{
    write_program("");
    static char *argv[] = {program, (char *)(uintptr_t) "-u", (char *)(uintptr_t) "x.py", NULL};
    const struct warm_hooks hooks = {NULL, on_say, on_settled};
    const struct warm_config config = {.modules = "torch",
                                       .program = "/nowhere/python3",
                                       .argv = argv,
                                       .envp = argv + 3,
                                       .own = ""};
    said[0] = '\0';
    settled = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(warm_process_open(&warm, &loop, &config, &hooks, NULL), DDP_OK);
    warm_process_begin(&warm);
    await(WARM_REFUSED);
    ck_assert_ptr_nonnull(strstr(said, "cannot preload 'torch': cannot start '/nowhere/python3'"));
    finish();
}
END_TEST

/* Its end is no news when no worker will be started. */
START_TEST(its_end_is_not_reported_when_the_job_is_over)
{
    begin("printf 'ready 1 x' >&3; exec sleep 600");
    await(WARM_READY);
    warm_process_end(&warm);
    enum warm_state state = WARM_READY;
    while (warm.pid != 0)
        is_in(&state);
    ck_assert_str_eq(said, "");
    finish();
}
END_TEST

START_TEST(one_that_did_not_fork_is_replaced)
{
    begin("printf 'ready 1 x' >&3; exec sleep 600");
    await(WARM_READY);
    warm_process_failed(&warm, "it was slow");
    ck_assert_int_eq(warm_process_socket(&warm), 0);
    await(WARM_ABSENT);
    ck_assert_ptr_nonnull(strstr(said, "it was slow; workers start without it\n"));
    settled = 0;
    warm_process_begin(&warm);
    await(WARM_READY);
    finish();
}
END_TEST

/* ---- forks ---- */

struct peer {
    int socket;
    const char *answer; /* NULL: close without one; "": none */
    pid_t pid;          /* instead of @answer, unless 0 */
    unsigned char targets[16];
    ssize_t count;
};

static void *play(void *arg)
{
    struct peer *peer = arg;
    char control[CMSG_SPACE(16 * sizeof(int))], text[32];
    struct iovec iov = {peer->targets, sizeof peer->targets};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    peer->count = recvmsg(peer->socket, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    for (ssize_t i = 0; header != NULL && i < peer->count; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(header) + (size_t)i * sizeof fd, sizeof fd);
        close(fd);
    }
    snprintf(text, sizeof text, "%d", (int)peer->pid);
    const char *answer = peer->pid != 0 ? text : peer->answer;
    if (answer == NULL)
        close(peer->socket);
    else if (*answer != '\0')
        ck_assert_int_gt(send(peer->socket, answer, strlen(answer), MSG_NOSIGNAL), 0);
    return NULL;
}

/* Ask a process that answers with @answer or @pid for a fork; returns the sentence. */
static const char *ask(const char *answer, pid_t pid)
{
    static struct ddp_error error;
    static char name[] = "true", *argv[] = {name, NULL};
    int ends_of[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_of), 0);
    struct peer peer = {.socket = ends_of[1], .answer = answer, .pid = pid};
    const struct spawn_request request = {.path = "/bin/true",
                                          .argv = argv,
                                          .envp = argv + 1,
                                          .stdio = {0, 1, 2},
                                          .life_fd = ends_of[0],
                                          .warm_fd = ends_of[0]};
    struct spawn_child child = {0};
    pthread_t thread;
    int status;
    error.msg[0] = '\0';
    ck_assert_int_eq(pthread_create(&thread, NULL, play, &peer), 0);
    ck_assert_int_eq(warm_fork_or_spawn(&request, &child, &error), DDP_OK);
    pthread_join(thread, NULL);
    ck_assert(!child.forked);
    ck_assert_int_eq(waitpid(child.pid, &status, 0), child.pid);
    ck_assert_int_eq(status, 0);
    close(child.pidfd);
    static const unsigned char targets[] = {64, 0, 1, 2, SPAWN_LIFE_FD};
    ck_assert_int_eq(peer.count, (ssize_t)sizeof targets);
    ck_assert_mem_eq(peer.targets, targets, sizeof targets);
    if (answer != NULL || pid != 0) { /* it reads the end of its socket */
        char byte;
        ck_assert_int_eq(recv(ends_of[1], &byte, 1, 0), 0);
        close(ends_of[1]);
    }
    close(ends_of[0]);
    return error.msg;
}

START_TEST(a_worker_starts_whatever_the_answer_is)
{
    ck_assert_str_eq(ask(NULL, 0), "the warm process has ended");
    ck_assert_str_eq(ask("", 0), "the warm process has not answered within 2000 ms");
    static const char *const bad[] = {"0", "-1", "x", "12x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_str_eq(ask(bad[i], 0), "the warm process could not fork");
    ck_assert_ptr_nonnull(
        strstr(ask(NULL, 1), "has answered with pid 1, which is no child of the"));
    ck_assert_ptr_nonnull(strstr(ask(NULL, getpid()), "which is no child of the agent"));
    ck_assert_ptr_nonnull(strstr(ask("2147483647", 0), "cannot watch the worker that was forked"));
}
END_TEST

/* A child that does not read its arguments is ended, and another one takes its place. */
START_TEST(a_worker_that_is_gone_is_replaced)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(0);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    ck_assert_ptr_nonnull(strstr(ask(NULL, child), "cannot send a forked worker its arguments"));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("warm process");
    TCase *tcase = tcase_create("process");
    ADD_TESTS(tcase, the_table_is_valid, without_modules_there_is_none,
              it_gets_its_program_and_the_command_line);
    tcase_add_loop_test(tcase, it_fails_with_a_sentence, 0, (int)(sizeof ends / sizeof *ends));
    ADD_TESTS(tcase, a_program_that_cannot_be_started, its_end_is_not_reported_when_the_job_is_over,
              one_that_did_not_fork_is_replaced);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("forks");
    tcase_add_test(tcase, a_worker_starts_whatever_the_answer_is);
    tcase_add_test(tcase, a_worker_that_is_gone_is_replaced);
    suite_add_tcase(suite, tcase);
    return suite;
}
