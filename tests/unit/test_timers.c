/*
 * test_timers.c - countdowns of processes: set, renewed, released, due.
 */
#include "check_main.h"
#include "failmem.h"
#include "mem.h"
#include "timers.h"

#include <stdio.h>
#include <string.h>

static struct timers timers;

static void clear(void)
{
    timers_clear(&timers);
}

static void set(pid_t pid, const char *scope, uint64_t due_ms, int signal)
{
    ck_assert(timers_set(&timers, pid, scope, due_ms, signal));
}

static void due(uint64_t now_ms, pid_t pid, const char *scope, int signal)
{
    struct timer_entry entry;
    ck_assert(timers_take_due(&timers, now_ms, &entry));
    ck_assert_int_eq(entry.pid, pid);
    ck_assert_int_eq(entry.signal, signal);
    ck_assert_str_eq(entry.scope, scope);
    ddpi_free(entry.scope);
}

static void none_due(uint64_t now_ms)
{
    struct timer_entry entry;
    ck_assert(!timers_take_due(&timers, now_ms, &entry));
}

START_TEST(one_is_due_in_its_time)
{
    none_due(UINT64_MAX);
    ck_assert_uint_eq(timers_next_ms(&timers), UINT64_MAX);
    set(7, "step", 100, 9);
    ck_assert_uint_eq(timers_next_ms(&timers), 100);
    none_due(99);
    due(100, 7, "step", 9);
    none_due(UINT64_MAX);
}
END_TEST

START_TEST(it_is_renewed_and_released_by_process_and_scope)
{
    set(7, "step", 100, 9);
    set(7, "step", 200, 15);
    set(7, "other", 150, 9);
    set(8, "step", 120, 9);
    ck_assert_uint_eq(timers.count, 3);
    timers_release(&timers, 8, "step");
    timers_release(&timers, 8, "step");
    timers_release(&timers, 7, "other");
    ck_assert_uint_eq(timers_next_ms(&timers), 200);
    due(200, 7, "step", 15);
}
END_TEST

START_TEST(a_process_is_taken_once_by_the_first_with_a_signal)
{
    set(7, "silent", 100, 0);
    set(7, "b", 120, 15);
    set(7, "a", 110, 9);
    set(7, "later", 900, 9);
    set(8, "x", 105, -1);
    due(200, 7, "a", 9);
    due(200, 8, "x", -1);
    none_due(UINT64_MAX);
}
END_TEST

START_TEST(there_are_not_too_many)
{
    char scope[16];
    for (int i = 0; i < TIMERS_MAX; i++) {
        snprintf(scope, sizeof scope, "%d", i);
        set(7, scope, 100 + (uint64_t)i, 9);
    }
    ck_assert(!timers_set(&timers, 7, "more", 1, 9));
    set(7, "0", 5000000, 9); /* in its own place */
    ck_assert_uint_eq(timers_next_ms(&timers), 101);
}
END_TEST

START_TEST(without_memory_one_is_refused)
{
    bool complete = false;
    for (unsigned successes = 0; !complete; successes++) {
        failmem_start(successes);
        bool ok = timers_set(&timers, 7, "a", 1, 9);
        complete = !failmem_stop();
        ck_assert(ok == complete);
    }
    due(1, 7, "a", 9);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("timers");
    TCase *tcase = tcase_create("timers");
    tcase_add_checked_fixture(tcase, NULL, clear);
    ADD_TESTS(tcase, one_is_due_in_its_time, it_is_renewed_and_released_by_process_and_scope,
              a_process_is_taken_once_by_the_first_with_a_signal, there_are_not_too_many,
              without_memory_one_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
