/*
 * test_watchdog.c - the FIFO of timers where it cannot be made.
 * tests/integration/test_ddprun_timers.py tests requests.
 */
#include "check_main.h"
#include "tree.h"
#include "watchdog.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/test_watchdog_XXXXXX";

static void make_base(void)
{
    ck_assert_ptr_nonnull(mkdtemp(base));
    ck_assert_int_eq(chdir(base), 0);
}

static void remove_base(void)
{
    tree_remove(base);
}

/* No descriptor is free, so it can be made and not opened. */
START_TEST(what_cannot_be_opened_is_not_left_behind)
{
    struct watchdog_fifo fifo;
    struct ddp_error error = {0};
    struct rlimit limit, none;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ddp_status status = watchdog_fifo_make(&fifo, "fifo", NULL, &error);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_ne(status, DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "'fifo'"));
    ck_assert_int_ne(access("fifo", F_OK), 0);
    watchdog_fifo_remove(&fifo);
}
END_TEST

START_TEST(only_a_fifo_without_a_reader_is_replaced)
{
    struct watchdog_fifo first, second;
    struct ddp_error error = {0};
    ck_assert_int_eq(mkfifo("fifo", 0600), 0);
    ck_assert_int_eq(watchdog_fifo_make(&first, "fifo", NULL, &error), DDP_OK);
    ck_assert_int_ne(watchdog_fifo_make(&second, "fifo", NULL, &error), DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "another job that is running"));
    watchdog_fifo_remove(&second);
    ck_assert_int_eq(access("fifo", F_OK), 0);
    watchdog_fifo_remove(&first);
    ck_assert_int_ne(access("fifo", F_OK), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *tcase = tcase_create("watchdog");
    tcase_add_checked_fixture(tcase, make_base, remove_base);
    tcase_add_test(tcase, what_cannot_be_opened_is_not_left_behind);
    tcase_add_test(tcase, only_a_fifo_without_a_reader_is_replaced);
    suite_add_tcase(suite, tcase);
    return suite;
}
