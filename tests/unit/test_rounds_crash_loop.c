/*
 * test_rounds_crash_loop.c - workers that fail again and again, soon after their start: the pauses
 * before restarts, what ends a pause, and when the job is given up.
 */
#include "check_main.h"
#include "rounds_fixture.h"

#include <string.h>

static const char *const abc[] = {"a", "b", "c"};
static struct rounds_fixture at;

static void setup(void)
{
    rounds_start(&at);
    at.terms.max_restarts = 100;
    at.terms.crash_loop = 3;
}

static void teardown(void)
{
    rounds_finish(&at);
}

/* A worker of member @id fails, and all end. Returns how long the machine pauses. */
static uint64_t fail_once(unsigned id, int exit_code, uint64_t ran_ms)
{
    rounds_fail(&at, id, exit_code, ran_ms);
    rounds_obey(&at, 3);
    if (rounds_summary(&at).state != ROUNDS_PAUSING)
        return 0;
    ck_assert_uint_gt(ddpi_rounds_deadline(at.rounds), at.now_ms);
    return ddpi_rounds_deadline(at.rounds) - at.now_ms;
}

static void assert_runs_again(void)
{
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_obey(&at, 3);
}

/* The same, and the next generation runs after the pause if it can. */
static uint64_t fail_and_go_on(unsigned id, int exit_code, uint64_t ran_ms)
{
    uint64_t pause_ms = fail_once(id, exit_code, ran_ms);
    if (pause_ms != 0) {
        rounds_step_after(&at, pause_ms - 1);
        rounds_assert_state(&at, ROUNDS_PAUSING);
        rounds_step_after(&at, 1);
    }
    if (rounds_summary(&at).state != ROUNDS_CLOSED)
        assert_runs_again();
    return pause_ms;
}

/* Rank 2 of member 1 failed twice. */
static void run_into_pause(void)
{
    rounds_run(&at, 3, abc);
    ck_assert_uint_eq(fail_and_go_on(1, 1, 200), 0);
    ck_assert_uint_eq(fail_once(1, 1, 300), 500);
}

/* ---- the length of pauses ---- */

START_TEST(pauses_grow)
{
    static const uint64_t pauses_ms[] = {0,    500,   1000,  2000,  4000,
                                         8000, 16000, 30000, 30000, 30000};
    at.terms.crash_loop = 50;
    rounds_run(&at, 3, abc);
    for (size_t i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++)
        ck_assert_uint_eq(fail_and_go_on(1, 1, 200), pauses_ms[i]);
    ck_assert_uint_eq(rounds_summary(&at).restarts, sizeof pauses_ms / sizeof *pauses_ms);
    ck_assert_uint_eq(fail_and_go_on(1, 1, 20000), 0); /* it has worked for a while */
    ck_assert_uint_eq(fail_and_go_on(1, 1, 200), 0);
    ck_assert_uint_eq(fail_and_go_on(1, 1, 200), 500);
    ck_assert_uint_eq(fail_and_go_on(1, 2, 200), 1000); /* the same node, if not the same end */
    ck_assert_uint_eq(fail_and_go_on(0, 3, 200), 0);
}
END_TEST

START_TEST(it_can_be_turned_off)
{
    at.terms.crash_loop = 0;
    rounds_run(&at, 3, abc);
    for (unsigned i = 0; i < 100; i++)
        ck_assert_uint_eq(fail_and_go_on(1, 1, 200), 0);
    rounds_assert_state(&at, ROUNDS_RUNNING);
}
END_TEST

START_TEST(the_last_restart_is_followed_by_no_pause)
{
    at.terms.max_restarts = 1;
    rounds_run(&at, 3, abc);
    ck_assert_uint_eq(fail_and_go_on(1, 7, 200), 0);
    ck_assert_uint_eq(fail_and_go_on(1, 7, 200), 0);
    rounds_assert_closed(&at, 7, "failed: 7");
}
END_TEST

START_TEST(all_nodes_are_told_once)
{
    run_into_pause();
    for (unsigned id = 0; id < 3; id++) {
        rounds_assert_seat(&at, id, DDP_ROUND_WAIT,
                           "rank 2 on node b failed 2 times in a row with exit code 1, each "
                           "time within 0.3 s of the start: the next restart follows in 0.5 s");
        ck_assert(at.seat[id].pausing && !at.seat[id].spare);
    }
    unsigned told = at.told_all;
    rounds_step_after(&at, 499);
    ck_assert_uint_eq(at.told_all, told);
    rounds_step_after(&at, 1);
    ck_assert_uint_eq(at.told_all, told + 3);
    ck_assert(!at.seat[0].pausing);
    assert_runs_again();
}
END_TEST

/* ---- what ends a pause ---- */

START_TEST(an_order_to_stop_ends_it)
{
    run_into_pause();
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.stop = true});
    rounds_step(&at);
    rounds_assert_closed(&at, 143, "stopped by request");
}
END_TEST

START_TEST(a_node_that_joins_ends_it)
{
    rounds_join(&at, 0, "a");
    rounds_join(&at, 1, "b");
    rounds_step_after(&at, at.terms.settle_ms);
    rounds_obey(&at, 3);
    (void)fail_and_go_on(1, 1, 200);
    ck_assert_uint_eq(fail_once(1, 1, 200), 500);
    struct ddp_round_terms terms = at.terms;
    at.terms.max_nodes = 7;
    rounds_join(&at, 3, "d"); /* is refused */
    rounds_assert_state(&at, ROUNDS_PAUSING);
    at.terms = terms;
    rounds_join(&at, 2, "c");
    assert_runs_again();
    ck_assert_uint_eq(at.seat[2].nodes, 3);
}
END_TEST

/* Those that are left go on after the pause, unless they are too few. */
START_TEST(a_node_that_leaves_ends_it_if_it_is_needed)
{
    run_into_pause();
    rounds_leave(&at, 0);
    rounds_gone(&at, 0);
    rounds_assert_state(&at, ROUNDS_PAUSING);
    rounds_leave(&at, 1);
    rounds_assert_closed(&at, 130, "node b has left, and 1 of at least 2 nodes is left");
}
END_TEST

START_TEST(with_too_few_left_the_others_are_waited_for)
{
    run_into_pause();
    rounds_gone(&at, 0);
    rounds_gone(&at, 1);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, "waiting for 1 more node");
}
END_TEST

START_TEST(a_server_that_starts_again_does_not_go_on_with_it)
{
    run_into_pause();
    rounds_restart(&at);
    rounds_step(&at);
    assert_runs_again();
    ck_assert_uint_eq(rounds_summary(&at).restarts, 2);
}
END_TEST

/* The server ended after it had told the next generation, and before it stored that. */
START_TEST(a_server_that_has_gone_on_already_stays_there)
{
    run_into_pause();
    struct ddpi_rounds_summary stored = rounds_summary(&at);
    rounds_step_after(&at, 500);
    ddpi_rounds_destroy(at.rounds);
    at.rounds = ddpi_rounds_create(&at.hooks, at.begun_generation);
    ddpi_rounds_restore(at.rounds, &stored);
    for (unsigned id = 0; id < 3; id++) {
        ck_assert_int_eq(ddpi_rounds_member(at.rounds, id, &at.says[id]), DDP_OK);
        ddpi_rounds_restore_seat(at.rounds, id, &at.seat[id]);
    }
    rounds_step(&at);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(rounds_summary(&at).generation, 3);
}
END_TEST

/* ---- when it is given up ---- */

START_TEST(after_enough_failures_and_enough_time)
{
    rounds_run(&at, 3, abc);
    for (unsigned i = 0; i < 7; i++) {
        (void)fail_and_go_on(1, 1, 1200);
        rounds_assert_state(&at, ROUNDS_RUNNING);
    }
    rounds_fail(&at, 1, -1, 200); /* known only later */
    rounds_fail(&at, 1, 1, 200);
    rounds_obey(&at, 3);
    rounds_assert_closed(&at, 93,
                         "rank 2 on node b failed 8 times in a row with exit code 1, each time "
                         "within 1.2 s of the start: it would happen again");
    ck_assert_uint_eq(rounds_summary(&at).restarts, 7);
}
END_TEST

START_TEST(time_alone_is_not_enough)
{
    at.terms.crash_loop = 10;
    rounds_run(&at, 3, abc);
    for (unsigned i = 0; i < 9; i++)
        (void)fail_and_go_on(1, 1, 200);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    (void)fail_and_go_on(1, 1, 200);
    rounds_assert_closed(&at, 93, "failed 10 times in a row");
}
END_TEST

/* An outage of eight seconds: each failure takes a while to come. */
START_TEST(an_outage_is_survived)
{
    at.terms.crash_loop = 5;
    rounds_run(&at, 3, abc);
    uint64_t end_ms = at.now_ms + 8000;
    while (at.now_ms < end_ms) {
        at.now_ms += 20;
        (void)fail_and_go_on(1, 1, 20);
    }
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_le(rounds_summary(&at).restarts, 7);
}
END_TEST

START_TEST(a_node_on_which_all_fail)
{
    rounds_run(&at, 3, abc);
    (void)fail_and_go_on(0, 4, 100);
    for (int i = 0; i < 7; i++)
        (void)fail_and_go_on(1, 1 + i, 1000);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    (void)fail_and_go_on(1, 9, 500);
    rounds_assert_closed(&at, 93,
                         "workers on node b failed 8 times in a row, each time within 1 s of "
                         "the start: it would happen again");
}
END_TEST

/* Which of them is the first is chance. */
START_TEST(all_workers_fail_alike)
{
    rounds_run(&at, 3, abc);
    for (unsigned i = 0; i < 7; i++)
        (void)fail_and_go_on(i % 2, 4, 100);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    (void)fail_and_go_on(1, 4, 100);
    rounds_assert_closed(&at, 93,
                         "workers failed 8 times in a row with exit code 4, each time within 0.1 s "
                         "of the start: it would happen again");
}
END_TEST

START_TEST(one_node_alone_is_no_pattern)
{
    at.terms = (struct ddp_round_terms){1, 1, 100, 0, 0, 2, DDP_ROUND_JOIN_NOW, 0, false};
    rounds_run(&at, 1, abc);
    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(fail_and_go_on(0, 1 + i, 100), 0);
}
END_TEST

/* The text of a program does not change by waiting. */
START_TEST(a_program_that_cannot_run)
{
    rounds_run(&at, 3, abc);
    at.says[1].failure.broken_program = true;
    ck_assert_uint_eq(fail_and_go_on(1, 1, 100), 0);
    ck_assert_uint_eq(fail_and_go_on(1, 1, 100), 0);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(fail_and_go_on(1, 1, 100), 0);
    rounds_assert_closed(&at, 93,
                         "rank 2 on node b failed 3 times in a row with exit code 1, each time "
                         "within 0.1 s of the start: its program cannot run as it is");
}
END_TEST

START_TEST(it_is_another_failure_than_that_before)
{
    rounds_run(&at, 3, abc);
    for (unsigned i = 0; i < 5; i++)
        (void)fail_and_go_on(1, 1, 100);
    at.says[1].failure.broken_program = true;
    ck_assert_uint_eq(fail_and_go_on(1, 1, 100), 0);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    at.says[1].failure.broken_program = false;
    ck_assert_uint_eq(fail_and_go_on(1, 1, 100), 0);
    ck_assert_uint_eq(fail_and_go_on(1, 1, 100), 500);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_crash_loop");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, pauses_grow, it_can_be_turned_off, the_last_restart_is_followed_by_no_pause,
              all_nodes_are_told_once, an_order_to_stop_ends_it, a_node_that_joins_ends_it,
              a_node_that_leaves_ends_it_if_it_is_needed,
              with_too_few_left_the_others_are_waited_for,
              a_server_that_starts_again_does_not_go_on_with_it,
              a_server_that_has_gone_on_already_stays_there, after_enough_failures_and_enough_time,
              time_alone_is_not_enough, an_outage_is_survived, a_node_on_which_all_fail,
              all_workers_fail_alike, one_node_alone_is_no_pattern, a_program_that_cannot_run,
              it_is_another_failure_than_that_before);
    suite_add_tcase(suite, tcase);
    return suite;
}
