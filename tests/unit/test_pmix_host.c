/*
 * test_pmix_host.c - how the agent starts and ends the PMIx server, played by shell scripts. The
 * real one is in tests/interop/test_openmpi.py.
 */
#include "check_main.h"
#include "looptest.h"
#include "mem.h"
#include "pmix_host.h"
#include "reap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3 };

static uv_loop_t loop;
static struct pmix_host host;
static char said[1024];
static bool unprepared; /* prepare() fails */
static int prepared;    /* without release() */

static void add(const char *what, const char *text)
{
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s %s\n", what, text);
}

static void on_say(void *ctx, const char *line)
{
    (void)ctx;
    add("say", line);
}

static void on_aborted(void *ctx, uint32_t local_rank, int exit_code)
{
    char text[32];
    (void)ctx;
    snprintf(text, sizeof text, "%u %d", local_rank, exit_code);
    add("abort", text);
}

static void on_failed(void *ctx, const char *why)
{
    (void)ctx;
    add("fail", why);
}

static int strangers; /* that connect first */

static bool is_ours(void *ctx, int fd)
{
    (void)ctx;
    ck_assert_int_ge(fd, 0);
    return strangers-- <= 0;
}

static ddp_status on_prepare(void *ctx, struct pmix_host_start *ret, struct ddp_error *err)
{
    (void)ctx;
    if (unprepared) {
        snprintf(err->msg, sizeof err->msg, "no key");
        return DDP_E_NOT_FOUND;
    }
    ret->envp = ddpi_calloc(1, sizeof *ret->envp);
    prepared++;
    return DDP_OK;
}

static void on_release(void *ctx, struct pmix_host_start *start)
{
    (void)ctx;
    ddpi_free(start->envp);
    prepared--;
}

static void on_settled(void *ctx)
{
    (void)ctx;
}

static char folder[40], program[64];

/* Descriptor 1 of the server is its channel to the agent, in both directions. */
static void open_host(const char *script)
{
    const struct pmix_host_hooks hooks = {.say = on_say,
                                          .aborted = on_aborted,
                                          .failed = on_failed,
                                          .is_ours = is_ours,
                                          .prepare = on_prepare,
                                          .release = on_release,
                                          .settled = on_settled};
    snprintf(folder, sizeof folder, "/tmp/test_pmix_host.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/server", folder);
    FILE *file = fopen(program, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "#!/bin/sh\n%s\n", script != NULL ? script : "");
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(program, 0700), 0);
    said[0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(
        pmix_host_open(&host, &loop, script != NULL ? program : NULL, RANKS, &hooks, NULL), DDP_OK);
    ck_assert_int_eq(pmix_host_begin(&host, NULL), DDP_OK);
}

static void close_host(void)
{
    pmix_host_close(&host);
    looptest_close(&loop);
    pmix_host_finish(&host);
    ck_assert_int_eq(prepared, 0);
    unlink(program);
    rmdir(folder);
}

static int knock(void)
{
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_port = htons(host.port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&there, sizeof there), 0);
    return fd;
}

static int connect_rank(void)
{
    int fd = knock();
    ck_assert_int_eq(write(fd, "x", 1), 1);
    return fd;
}

static void note_exit(void *ctx, pid_t pid, int wait_status)
{
    (void)ctx;
    pmix_host_exited(&host, pid, wait_status);
}

static bool is_state(void *ctx)
{
    if (!pmix_host_busy(&host))
        reap_collect(note_exit, NULL);
    return host.sm.state == *(const unsigned *)ctx;
}

static void run_until(unsigned state)
{
    looptest_run_until(&loop, is_state, &state);
}

START_TEST(its_states_are_sound)
{
    ck_assert(ddpi_sm_table_valid(&pmix_host_sm));
}
END_TEST

START_TEST(without_a_rank_that_connects_nothing_is_started)
{
    open_host("echo say started >&1");
    ck_assert_uint_ne(host.port, 0);
    pmix_host_rank_gone(&host, 1);
    pmix_host_end(&host);
    ck_assert_uint_eq(host.sm.state, PMIX_HOST_IDLE);
    ck_assert_int_eq(pmix_host_begin(&host, NULL), DDP_OK); /* the next generation */
    pmix_host_end(&host);
    ck_assert(!host.has_spawner);
    close_host();
    ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(its_lines_arrive_and_it_hears_which_ranks_are_gone)
{
    open_host("read one <&1; read two <&1; echo \"say $one, $two\"; echo abort 2 -7\n"
              "echo abort 3 1; echo abort x; echo unknown; echo fail why; read end <&1; exit 0");
    pmix_host_rank_gone(&host, 2);
    int fd = connect_rank();
    run_until(PMIX_HOST_SERVING);
    pmix_host_rank_gone(&host, 0);
    while (strstr(said, "fail") == NULL)
        uv_run(&loop, UV_RUN_ONCE);
    pmix_host_end(&host);
    ck_assert_uint_eq(host.sm.state, PMIX_HOST_ENDING);
    run_until(PMIX_HOST_IDLE);
    close(fd);
    close_host();
    ck_assert_str_eq(said, "say gone 2, gone 0\nabort 2 -7\nfail why\n");
}
END_TEST

static const struct {
    const char *script;
    const char *says;
} ends[] = {
    {"echo say last words; exit 127", "say last words\nfail MPI programs of Open MPI cannot be "
                                      "served: their PMIx server lacks a library; install libpmix "
                                      "(Debian package libpmix2)\n"},
    {"exit 3", "fail MPI programs of Open MPI cannot be served: their PMIx server has ended with "
               "exit code 3\n"},
    {"kill -9 $$", "fail MPI programs of Open MPI cannot be served: their PMIx server was killed "
                   "by SIGKILL\n"},
};

/* Ranks that have not connected yet would take themselves for a world of one. */
START_TEST(a_server_that_ends_by_itself_fails_the_generation)
{
    open_host(ends[_i].script);
    int fd = connect_rank();
    run_until(PMIX_HOST_IDLE);
    close(fd);
    close_host();
    ck_assert_str_eq(said, ends[_i].says);
}
END_TEST

START_TEST(one_that_cannot_be_started_fails_the_generation)
{
    open_host(_i == 0 ? NULL : "exit 0");
    unprepared = _i == 1;
    if (_i == 2)
        ck_assert_int_eq(unlink(program), 0);
    int fd = connect_rank();
    run_until(PMIX_HOST_IDLE);
    close(fd);
    close_host();
    static const char *const parts[] = {"built without libpmix", "no key", "No such file"};
    ck_assert_msg(strncmp(said, "fail MPI programs of Open MPI cannot be served: ", 48) == 0 &&
                      strstr(said, parts[_i]) != NULL,
                  "%s", said);
}
END_TEST

/* Also a scan of ports, of the user's own, and another user of the machine must not end the job
 * where the server cannot be started. */
START_TEST(a_stranger_starts_nothing)
{
    open_host("exit 3");
    strangers = 2;
    for (int i = 0; i < 4; i++) {
        int fd = i < 2 ? connect_rank() : knock();
        ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
        struct pollfd end = {.fd = fd, .events = POLLRDHUP};
        while (poll(&end, 1, 0) == 0)
            uv_run(&loop, UV_RUN_ONCE);
        close(fd);
        ck_assert_uint_eq(host.sm.state, PMIX_HOST_LISTENING);
    }
    int fd = connect_rank();
    run_until(PMIX_HOST_IDLE);
    close(fd);
    close_host();
    ck_assert_msg(strstr(said, "exit code 3") != NULL, "%s", said);
}
END_TEST

/* As when a worker fails while the server is being started. */
START_TEST(an_end_meets_a_server_that_is_being_started)
{
    open_host("read line <&1; exit 0");
    int fd = connect_rank();
    while (host.sm.state == PMIX_HOST_LISTENING)
        uv_run(&loop, UV_RUN_ONCE);
    pmix_host_end(&host);
    run_until(PMIX_HOST_IDLE);
    close(fd);
    close_host();
    ck_assert_str_eq(said, "");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pmix_host");
    TCase *tcase = tcase_create("pmix_host");
    ADD_TESTS(tcase, its_states_are_sound, without_a_rank_that_connects_nothing_is_started,
              its_lines_arrive_and_it_hears_which_ranks_are_gone, a_stranger_starts_nothing,
              an_end_meets_a_server_that_is_being_started);
    tcase_add_loop_test(tcase, a_server_that_ends_by_itself_fails_the_generation, 0,
                        sizeof ends / sizeof *ends);
    tcase_add_loop_test(tcase, one_that_cannot_be_started_fails_the_generation, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
