/*
 * test_clock.c - deadlines at the ends of their range, and clocks real and owned by a test.
 */
#include "check_main.h"
#include "clock.h"

START_TEST(the_real_clock_goes_forward)
{
    uint64_t before = ddpi_now_us(&ddpi_clock_monotonic);
    ck_assert(before > 0);
    uint64_t now = before;
    while (now == before)
        now = ddpi_now_us(&ddpi_clock_monotonic);
    ck_assert(now > before);
    ck_assert(ddpi_now_ms(&ddpi_clock_monotonic) >= before / 1000);
}
END_TEST

START_TEST(the_coarse_clock_lags_behind)
{
    uint64_t coarse_ns = ddpi_now_coarse_ns();
    ck_assert(coarse_ns / 1000 <= ddpi_now_us(&ddpi_clock_monotonic));
    ck_assert(coarse_ns > 0 && ddpi_now_coarse_ns() >= coarse_ns);
    ck_assert(ddpi_now_real_ns() > UINT64_C(1500000000) * 1000000000); /* it is past 2017 */
}
END_TEST

static uint64_t stopped_at(void *ctx)
{
    return *(uint64_t *)ctx;
}

START_TEST(all_units_are_of_one_clock)
{
    uint64_t ns = ddpi_monotonic_ns(), us = ddpi_monotonic_us(), ms = ddpi_monotonic_ms();
    ck_assert(ns / 1000 <= us && us / 1000 <= ms);
    ck_assert(ms <= ddpi_now_ms(&ddpi_clock_monotonic));
}
END_TEST

START_TEST(a_test_owns_its_time)
{
    uint64_t now_us = 1999;
    const struct ddpi_clock clock = {.now_us = stopped_at, .ctx = &now_us};
    ck_assert(ddpi_now_us(&clock) == 1999);
    ck_assert(ddpi_now_ms(&clock) == 1);
    now_us = 2000;
    ck_assert(ddpi_now_ms(&clock) == 2);
}
END_TEST

START_TEST(deadlines_do_not_wrap_around)
{
    ck_assert(ddpi_deadline(5, 0) == 5);
    ck_assert(ddpi_deadline(5, 10) == 15);
    ck_assert(ddpi_deadline(5, UINT64_MAX) == UINT64_MAX);
    ck_assert(ddpi_deadline(5, UINT64_MAX - 5) == UINT64_MAX);
    ck_assert(ddpi_deadline(5, UINT64_MAX - 6) == UINT64_MAX - 1);
    ck_assert(ddpi_deadline(0, UINT64_MAX) == UINT64_MAX);
}
END_TEST

START_TEST(what_remains_fits_poll)
{
    ck_assert_int_eq(ddpi_remaining_ms(10, 10), 0);
    ck_assert_int_eq(ddpi_remaining_ms(11, 10), 0);
    ck_assert_int_eq(ddpi_remaining_ms(UINT64_MAX, 0), 0);
    ck_assert_int_eq(ddpi_remaining_ms(10, 11), 1);
    ck_assert_int_eq(ddpi_remaining_ms(10, 10 + (uint64_t)INT32_MAX), INT32_MAX);
    ck_assert_int_eq(ddpi_remaining_ms(10, 11 + (uint64_t)INT32_MAX), INT32_MAX);
    ck_assert_int_eq(ddpi_remaining_ms(0, UINT64_MAX), INT32_MAX);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("clock");
    TCase *tcase = tcase_create("clock");
    ADD_TESTS(tcase, the_real_clock_goes_forward, the_coarse_clock_lags_behind,
              all_units_are_of_one_clock, a_test_owns_its_time, deadlines_do_not_wrap_around,
              what_remains_fits_poll);
    suite_add_tcase(suite, tcase);
    return suite;
}
