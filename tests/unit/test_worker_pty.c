/*
 * test_worker_pty.c - terminals for workers: their properties, and that they pass bytes unchanged.
 */
#include "check_main.h"
#include "worker_pty.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int ours, theirs;

static void open_one(void)
{
    struct ddp_error error = {0};
    ck_assert_msg(worker_pty_open(&ours, &theirs, &error) == DDP_OK, "%s", error.msg);
}

static void close_one(void)
{
    close(ours);
    close(theirs);
}

START_TEST(it_is_a_terminal_of_no_session)
{
    ck_assert_int_eq(isatty(theirs), 1);
    ck_assert_int_ne(fcntl(ours, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_ne(fcntl(theirs, F_GETFD) & FD_CLOEXEC, 0);
    pid_t session;
    ck_assert_int_ne(ioctl(theirs, TIOCGSID, &session), 0);
}
END_TEST

START_TEST(bytes_come_through_untouched)
{
    static const char text[] = "a\nb\r\n\t\x1b[0m\x03\x04\xff";
    char got[64];
    ck_assert_int_eq(write(theirs, text, sizeof text - 1), sizeof text - 1);
    ck_assert_int_eq(read(ours, got, sizeof got), sizeof text - 1);
    ck_assert_mem_eq(got, text, sizeof text - 1);
}
END_TEST

START_TEST(its_end_is_an_error_behind_the_last_byte)
{
    char got[8];
    ck_assert_int_eq(write(theirs, "x", 1), 1);
    close(theirs);
    ck_assert_int_eq(read(ours, got, sizeof got), 1);
    ck_assert_int_eq(read(ours, got, sizeof got), -1);
    ck_assert_int_eq(errno, EIO);
    theirs = dup(ours);
}
END_TEST

START_TEST(it_is_narrower_by_the_prefix)
{
    struct winsize size = {.ws_row = 50, .ws_col = 100};
    worker_pty_resize(ours, size);
    size = worker_pty_size(theirs, 11);
    ck_assert(size.ws_row == 50 && size.ws_col == 89);
    ck_assert_uint_eq(worker_pty_size(theirs, 95).ws_col, 20);
    ck_assert_uint_eq(worker_pty_size(theirs, 1000).ws_col, 20);
    worker_pty_resize(ours, (struct winsize){.ws_row = 5, .ws_col = 10});
    ck_assert_uint_eq(worker_pty_size(theirs, 5).ws_col, 10);
    size = worker_pty_size(-1, 11);
    ck_assert(size.ws_row == 24 && size.ws_col == 80);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("worker_pty");
    TCase *tcase = tcase_create("pty");
    tcase_add_checked_fixture(tcase, open_one, close_one);
    ADD_TESTS(tcase, it_is_a_terminal_of_no_session, bytes_come_through_untouched,
              its_end_is_an_error_behind_the_last_byte, it_is_narrower_by_the_prefix);
    suite_add_tcase(suite, tcase);
    return suite;
}
