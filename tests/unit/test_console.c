/*
 * test_console.c - one output of the agent: fast, slow, stalled, closed, full, or never open.
 */
#include "check_main.h"
#include "console.h"
#include "failmem.h"
#include "looptest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

static uv_loop_t loop;
static struct console console;
static unsigned drained;

static void on_drained(void *ctx)
{
    (void)ctx;
    drained++;
}

static void open_loop(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void start(int fd)
{
    drained = 0;
    console_init(&console, &loop, fd);
    console.drained = on_drained;
}

static void finish(void)
{
    console_close(&console);
    looptest_close(&loop);
    console_finish(&console);
}

/* Make a pipe: *@ret_reader does not block; returns the end for the console. */
static int make_pipe(int *ret_reader)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    ck_assert_int_ge(fd, 3);
    *ret_reader = looptest_capture(fd);
    return fd;
}

static void add(const char *prefix, const char *text)
{
    console_add(&console, prefix, strlen(prefix), text, strlen(text));
}

START_TEST(text_comes_out_in_order)
{
    int reader, fd = make_pipe(&reader);
    char text[64];
    size_t used = 0;
    start(fd);
    add("[0]:", "one\n");
    ck_assert(!console_idle(&console));
    ck_assert(looptest_read(reader, text, sizeof text, &used));
    ck_assert_uint_eq(used, 0); /* nothing is written before the flush */
    add("", "two\n");
    console_flush(&console);
    ck_assert(console_idle(&console));
    ck_assert(looptest_read(reader, text, sizeof text, &used));
    ck_assert_uint_eq(used, 12);
    ck_assert_mem_eq(text, "[0]:one\ntwo\n", 12);
    finish();
    ck_assert_int_ne(fcntl(fd, F_GETFD), -1); /* the console did not close it */
}
END_TEST

START_TEST(the_shells_descriptor_stays_blocking)
{
    int reader, fd = make_pipe(&reader);
    start(fd);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    add("", "x\n");
    console_flush(&console);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    finish();
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
}
END_TEST

enum { MUCH = 3 * 1024 * 1024 };

struct slow_reader {
    int fd;
    char *text;
    size_t used;
};

static bool read_until_idle(void *ctx)
{
    struct slow_reader *slow = ctx;
    looptest_read(slow->fd, slow->text, MUCH + 1, &slow->used);
    return console_idle(&console);
}

static char *make_much(void)
{
    char *much = malloc(MUCH);
    ck_assert_ptr_nonnull(much);
    for (size_t i = 0; i < MUCH; i++)
        much[i] = (char)('a' + i % 23);
    return much;
}

START_TEST(a_slow_reader_gets_everything)
{
    struct slow_reader slow = {.text = malloc(MUCH + 1)};
    ck_assert_ptr_nonnull(slow.text);
    int fd = make_pipe(&slow.fd);
    char *much = make_much();
    start(fd);
    for (size_t i = 0; i < MUCH; i += MUCH / 64)
        console_add(&console, "", 0, much + i, MUCH / 64);
    console_flush(&console); /* returns without a reader */
    ck_assert(console_full(&console));
    ck_assert(!console_idle(&console));
    looptest_run_until(&loop, read_until_idle, &slow);
    looptest_read(slow.fd, slow.text, MUCH + 1, &slow.used);
    ck_assert_uint_eq(slow.used, MUCH);
    ck_assert_int_eq(memcmp(slow.text, much, MUCH), 0);
    ck_assert(!console_full(&console));
    ck_assert_uint_gt(drained, 0);
    finish();
    free(much);
    free(slow.text);
}
END_TEST

/* A stopped terminal, or one with a dead line, takes no more at some point. A process that waits
 * for it cannot supervise. */
START_TEST(a_stalled_terminal_does_not_block)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    ck_assert_int_ge(master, 0);
    ck_assert_int_eq(grantpt(master), 0);
    ck_assert_int_eq(unlockpt(master), 0);
    int fd = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    struct termios raw;
    ck_assert_int_eq(tcgetattr(fd, &raw), 0);
    cfmakeraw(&raw);
    ck_assert_int_eq(tcsetattr(fd, TCSANOW, &raw), 0);

    struct slow_reader slow = {.fd = master, .text = malloc(MUCH + 1)};
    ck_assert_ptr_nonnull(slow.text);
    char *much = make_much();
    start(fd);
    for (size_t i = 0, len; i < MUCH; i += len) { /* fills the buffer at odd places */
        len = MUCH - i < 77 ? MUCH - i : 77;
        console_add(&console, "", 0, much + i, len);
        console_flush(&console);
    }
    ck_assert(!console_idle(&console));
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    looptest_run_until(&loop, read_until_idle, &slow);
    looptest_read(slow.fd, slow.text, MUCH + 1, &slow.used);
    ck_assert_uint_eq(slow.used, MUCH);
    ck_assert_int_eq(memcmp(slow.text, much, MUCH), 0);
    finish();
    free(much);
    free(slow.text);
    close(fd);
    close(master);
}
END_TEST

START_TEST(a_reader_that_is_gone_costs_nothing)
{
    int reader, fd = make_pipe(&reader);
    start(fd);
    close(reader);
    add("", "lost\n");
    console_flush(&console);
    ck_assert(console_idle(&console));
    add("", "lost as well\n");
    ck_assert(console_idle(&console));
    finish();
}
END_TEST

static bool is_idle(void *ctx)
{
    (void)ctx;
    return console_idle(&console);
}

START_TEST(a_reader_that_goes_is_noticed)
{
    int reader, fd = make_pipe(&reader);
    char *much = make_much();
    start(fd);
    console_add(&console, "", 0, much, MUCH);
    console_flush(&console);
    ck_assert(console_full(&console));
    close(reader);
    looptest_run_until(&loop, is_idle, NULL);
    ck_assert_uint_gt(drained, 0); /* the callback reports room */
    finish();
    free(much);
}
END_TEST

START_TEST(discarding_forgets_the_queue_and_what_follows)
{
    int reader, fd = make_pipe(&reader);
    char *much = make_much();
    start(fd);
    console_add(&console, "", 0, much, MUCH);
    console_flush(&console);
    console_discard(&console);
    ck_assert(console_idle(&console));
    ck_assert(!console_full(&console));
    add("", "more\n");
    ck_assert(console_idle(&console));
    finish();
    free(much);
}
END_TEST

START_TEST(a_closed_descriptor_is_a_reader_that_is_gone)
{
    start(900);
    add("", "lost\n");
    console_flush(&console);
    ck_assert(console_idle(&console));
    finish();
}
END_TEST

START_TEST(a_file_takes_all_at_once)
{
    char path[] = "/tmp/test_console_XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    char *much = make_much();
    start(fd);
    console_add(&console, "", 0, much, MUCH);
    console_flush(&console);
    ck_assert(console_idle(&console));
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), MUCH);
    finish();
    unlink(path);
    close(fd);
    free(much);
}
END_TEST

START_TEST(devices_without_poll_work_too)
{
    static const char *const paths[] = {"/dev/null", "/dev/full"};
    for (int i = 0; i < 2; i++) {
        int fd = open(paths[i], O_WRONLY | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        start(fd);
        add("", "nowhere\n");
        console_flush(&console);
        ck_assert(console_idle(&console));
        console_close(&console);
        console_finish(&console);
        close(fd);
    }
    looptest_close(&loop);
}
END_TEST

/* A limit on the size of the file stands in for a full disk. Later there is room again. */
START_TEST(a_file_may_have_room_again)
{
    char path[] = "/tmp/test_console_XXXXXX", text[512] = "";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_APPEND), 0);
    struct rlimit before, limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 200, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    start(fd);
    for (int i = 0; i < 100; i++) {
        add("", "ten bytes\n");
        console_flush(&console);
    }
    ck_assert(console_idle(&console));
    ck_assert_int_eq(console.failed_errno, EFBIG);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 200);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    add("", "after\n");
    console_flush(&console);
    ck_assert_int_ge(pread(fd, text, sizeof text - 1, 0), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0); /* Check writes files, too */
    ck_assert_str_eq(text, "ddprun: some output is missing here: File too large\nafter\n");
    finish();
    unlink(path);
    close(fd);
}
END_TEST

START_TEST(without_memory_a_whole_line_is_lost_and_that_is_said)
{
    int reader, fd = make_pipe(&reader);
    char text[256];
    size_t used = 0;
    start(fd);
    failmem_start(0);
    add("[0]:", "lost\n");
    console_flush(&console);
    ck_assert(failmem_stop());
    add("[0]:", "kept\n");
    console_flush(&console);
    ck_assert(looptest_read(reader, text, sizeof text - 1, &used));
    text[used] = '\0';
    ck_assert_msg(strncmp(text, "ddprun: some output is missing here", 35) == 0, "%s", text);
    ck_assert_str_eq(strchr(text, '\n'), "\n[0]:kept\n");
    finish();
}
END_TEST

/* The notice is queued as soon as there is room, whether or not more text follows. */
START_TEST(beyond_the_limit_all_is_lost_until_that_is_said)
{
    enum { LIMIT = 300 };
    int reader, fd = make_pipe(&reader);
    char text[2 * LIMIT], line[LIMIT - 20];
    size_t used = 0;
    start(fd);
    console.queue.limit = LIMIT;
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    console_add(&console, "[0]:", 4, line, sizeof line);
    console_add(&console, "[1]:", 4, line, sizeof line);
    add("", "short\n"); /* would fit */
    console_flush(&console);
    add("[0]:", "kept\n");
    console_flush(&console);
    ck_assert(looptest_read(reader, text, sizeof text - 1, &used));
    text[used] = '\0';
    ck_assert_int_eq(memcmp(text + 4, line, sizeof line), 0);
    const char *behind = text + 4 + sizeof line;
    ck_assert_msg(strncmp(behind, "ddprun: some output is missing here", 35) == 0, "%s", behind);
    ck_assert_str_eq(strchr(behind, '\n'), "\n[0]:kept\n");
    finish();
}
END_TEST

START_TEST(closing_twice_is_harmless)
{
    int reader, fd = make_pipe(&reader);
    start(fd);
    console_close(&console);
    finish();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("console");
    TCase *tcase = tcase_create("console");
    tcase_add_checked_fixture(tcase, open_loop, NULL);
    ADD_TESTS(tcase, text_comes_out_in_order, the_shells_descriptor_stays_blocking,
              a_slow_reader_gets_everything, a_stalled_terminal_does_not_block,
              a_reader_that_is_gone_costs_nothing, a_reader_that_goes_is_noticed,
              discarding_forgets_the_queue_and_what_follows,
              a_closed_descriptor_is_a_reader_that_is_gone, a_file_takes_all_at_once,
              devices_without_poll_work_too, a_file_may_have_room_again,
              without_memory_a_whole_line_is_lost_and_that_is_said,
              beyond_the_limit_all_is_lost_until_that_is_said, closing_twice_is_harmless);
    suite_add_tcase(suite, tcase);
    return suite;
}
