/*
 * test_busy_poll.c - a client that asks continually keeps the loop polling, one that asks rarely
 * does not.
 */
#include "busy_poll.h"
#include "check_main.h"

enum { WINDOW = 100 };

START_TEST(one_request_alone_lets_it_sleep)
{
    struct ddpi_busy_poll poll = {.window_ns = WINDOW};
    ck_assert(!ddpi_busy_poll_continues(&poll, 1000));
    ddpi_busy_poll_input(&poll, 1000);
    ck_assert(!ddpi_busy_poll_continues(&poll, 1000));
    ddpi_busy_poll_input(&poll, 1000 + WINDOW); /* too late by one */
    ck_assert(!ddpi_busy_poll_continues(&poll, 1000 + WINDOW));
}
END_TEST

START_TEST(two_in_a_row_keep_it_awake_for_the_window)
{
    struct ddpi_busy_poll poll = {.window_ns = WINDOW};
    ddpi_busy_poll_input(&poll, 1000);
    ddpi_busy_poll_input(&poll, 1000 + WINDOW - 1);
    ck_assert(ddpi_busy_poll_continues(&poll, 1000 + WINDOW - 1));
    ck_assert(ddpi_busy_poll_continues(&poll, 1000 + 2 * WINDOW - 2));
    ck_assert(!ddpi_busy_poll_continues(&poll, 1000 + 2 * WINDOW - 1));
    ddpi_busy_poll_input(&poll, 5000); /* and then it takes two again */
    ck_assert(!ddpi_busy_poll_continues(&poll, 5000));
}
END_TEST

START_TEST(no_window_means_never)
{
    struct ddpi_busy_poll poll = {0};
    for (uint64_t now = 1; now < 10; now++) {
        ddpi_busy_poll_input(&poll, now);
        ck_assert(!ddpi_busy_poll_continues(&poll, now));
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("busy_poll");
    TCase *tcase = tcase_create("rule");
    tcase_add_test(tcase, one_request_alone_lets_it_sleep);
    tcase_add_test(tcase, two_in_a_row_keep_it_awake_for_the_window);
    tcase_add_test(tcase, no_window_means_never);
    suite_add_tcase(suite, tcase);
    return suite;
}
