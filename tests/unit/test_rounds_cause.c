/*
 * test_rounds_cause.c - what the round machine does not know: whether a worker failed by itself or
 * because a node was lost, and whether workers of a generation that it has forgotten still run.
 */
#include "check_main.h"
#include "rounds_fixture.h"

#include <string.h>

static const char *const abc[] = {"a", "b", "c"};
static struct rounds_fixture at;

static void setup(void)
{
    rounds_start(&at);
}

static void teardown(void)
{
    rounds_finish(&at);
}

static void run_without_restarts(void)
{
    at.terms.max_restarts = 0;
    rounds_run(&at, 3, abc);
}

static void assert_reason(const char *reason)
{
    ck_assert_str_eq(rounds_summary(&at).reason, reason);
    ck_assert(!rounds_summary(&at).judging);
}

static void assert_goes_on(void)
{
    rounds_obey(&at, 3);
    rounds_obey(&at, 3);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(rounds_summary(&at).generation, 2);
    ck_assert_uint_eq(rounds_summary(&at).restarts, 0);
}

static void assert_over(int exit_code, const char *words)
{
    struct ddpi_rounds_summary summary = rounds_summary(&at);
    ck_assert_int_eq(summary.state, ROUNDS_CLOSED);
    ck_assert_int_eq(summary.exit_code, exit_code);
    ck_assert_msg(strstr(summary.reason, words) != NULL, "'%s'", summary.reason);
}

/* ---- failures and losses ---- */

START_TEST(a_failure_before_a_loss_is_its_effect)
{
    run_without_restarts();
    rounds_fail(&at, 1, 1, 20000);
    ck_assert(rounds_summary(&at).judging);
    rounds_fail(&at, 2, 1, 20000);
    rounds_say(&at, 1, DDP_ROUND_IDLE, 1);
    rounds_say(&at, 2, DDP_ROUND_IDLE, 1);
    rounds_assert_state(&at, ROUNDS_STOPPING); /* however long it takes */
    rounds_gone(&at, 0);
    ck_assert_str_eq(rounds_summary(&at).reason, "node a is lost");
    assert_goes_on();
}
END_TEST

/* Also if it is the node of the failed worker, and although the exit code is told late. */
START_TEST(the_node_that_failed_may_be_lost)
{
    run_without_restarts();
    rounds_fail(&at, 1, -1, 20000);
    rounds_fail(&at, 1, 7, 20000);
    rounds_gone(&at, 1);
    assert_reason("node b is lost");
    assert_goes_on();
}
END_TEST

START_TEST(an_exit_code_after_the_loss_changes_nothing)
{
    run_without_restarts();
    rounds_fail(&at, 1, -1, 20000);
    rounds_gone(&at, 0);
    rounds_fail(&at, 1, 7, 20000);
    assert_reason("node a is lost");
    assert_goes_on();
}
END_TEST

START_TEST(who_has_fenced_itself_explains_it)
{
    run_without_restarts();
    rounds_fail(&at, 1, 1, 20000);
    at.says[0].fenced = true;
    rounds_say(&at, 0, DDP_ROUND_IDLE, 1);
    assert_reason("node a has given up its part");
    assert_goes_on();
}
END_TEST

/* Noted in one step: there was nothing to conclude from in between. */
START_TEST(both_at_once)
{
    run_without_restarts();
    at.says[1].failure = (struct ddp_round_failure){.generation = 1, .exit_code = 1};
    ck_assert_int_eq(ddpi_rounds_member(at.rounds, 1, &at.says[1]), DDP_OK);
    rounds_gone(&at, 0);
    assert_reason("node a is lost");
    assert_goes_on();
}
END_TEST

/* Each of these had ended its part before, or goes for another reason: the failure stands. */
START_TEST(not_every_departure_is_a_loss)
{
    run_without_restarts();
    if (_i == 0)
        rounds_say(&at, 0, DDP_ROUND_DONE, 1);
    rounds_fail(&at, 1, 7, 20000);
    if (_i == 1)
        rounds_say(&at, 0, DDP_ROUND_IDLE, 1);
    else if (_i == 2)
        rounds_leave(&at, 0);
    rounds_gone(&at, 0);
    ck_assert(rounds_summary(&at).judging);
    rounds_obey(&at, 3);
    assert_over(7, "node b failed: 7");
}
END_TEST

START_TEST(a_final_failure_keeps_its_verdict)
{
    rounds_run(&at, 3, abc);
    at.says[1].failure.final = _i == 0;
    rounds_fail(&at, 1, _i == 0 ? 78 : -1, 10);
    rounds_gone(&at, 0);
    at.says[1].failure.final = true;
    rounds_fail(&at, 1, 78, 10); /* or is known to be one only now */
    rounds_obey(&at, 3);
    assert_over(78, "node b failed: 78");
}
END_TEST

START_TEST(an_effect_is_no_part_of_a_crash_loop)
{
    at.terms.crash_loop = 2;
    rounds_run(&at, 3, abc);
    for (unsigned i = 0; i < 4; i++) {
        rounds_fail(&at, 1, 1, 10);
        rounds_gone(&at, 2);
        rounds_obey(&at, 3);
        rounds_obey(&at, 3);
        rounds_join(&at, 2, "c");
        rounds_obey(&at, 3);
        rounds_obey(&at, 3);
        rounds_assert_state(&at, ROUNDS_RUNNING);
    }
    ck_assert_uint_eq(rounds_summary(&at).restarts, 0);
    rounds_fail(&at, 1, 1, 10);
    rounds_obey(&at, 3);
    rounds_obey(&at, 3);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(rounds_summary(&at).restarts, 1);
}
END_TEST

START_TEST(a_wish_to_stop_waits_for_the_verdict)
{
    at.terms.max_restarts = _i == 0 ? 0 : 3;
    rounds_run(&at, 3, abc);
    rounds_fail(&at, 1, 7, 20000);
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.stop = true});
    rounds_step(&at);
    ck_assert(!rounds_summary(&at).closing);
    if (_i == 2)
        rounds_gone(&at, 0);
    rounds_obey(&at, 3);
    if (_i == 0)
        assert_over(7, "failed: 7");
    else
        assert_over(143, "stopped by request");
}
END_TEST

START_TEST(a_restart_does_not_forget_to_judge)
{
    run_without_restarts();
    rounds_fail(&at, 1, 7, 20000);
    if (_i == 1)
        rounds_gone(&at, 0);
    rounds_restart(&at);
    rounds_step(&at);
    if (_i == 0)
        rounds_gone(&at, 0);
    if (_i == 2) {
        rounds_obey(&at, 3);
        assert_over(7, "node b failed: 7");
    } else {
        assert_reason("node a is lost");
        assert_goes_on();
    }
}
END_TEST

/* ---- a generation that is forgotten ---- */

enum { LEASE_MS = 3000 };

/* A server that has lost everything, and members that have not. */
static void forget(void)
{
    ddpi_rounds_destroy(at.rounds);
    at.rounds = ddpi_rounds_create(&at.hooks, 0);
    at.begun_generation = 0;
    at.terms.lease_ms = LEASE_MS;
    rounds_step(&at);
}

static void come_back(unsigned id, uint64_t generation)
{
    rounds_join(&at, id, abc[id]);
    rounds_say(&at, id, DDP_ROUND_IDLE, generation);
}

START_TEST(the_forgotten_are_given_time_to_end)
{
    forget();
    rounds_step_after(&at, 1000);
    for (unsigned id = 0; id < 3; id++)
        come_back(id, 7);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "");
    rounds_step_after(&at, 1001); /* texts are told anew once a second */
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "does not know what became of generation 7");
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), 1000 + LEASE_MS);
    rounds_step_after(&at, 998);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_step_after(&at, 1);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[0].generation, 8);
    rounds_obey(&at, 3);
    rounds_gone(&at, 0);
    rounds_obey(&at, 3);
    rounds_assert_state(&at, ROUNDS_RUNNING); /* never again */
}
END_TEST

START_TEST(there_is_still_time_to_settle)
{
    forget();
    rounds_step_after(&at, LEASE_MS - 50);
    come_back(0, 7);
    come_back(1, 0);
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), at.now_ms + at.terms.settle_ms);
    rounds_step_after(&at, at.terms.settle_ms);
    rounds_assert_state(&at, ROUNDS_RUNNING);
}
END_TEST

/* The store knows that all of a job's former life is over. */
START_TEST(what_the_store_remembers_needs_no_time)
{
    ddpi_rounds_destroy(at.rounds);
    at.rounds = ddpi_rounds_create(&at.hooks, 7);
    at.terms.lease_ms = LEASE_MS;
    for (unsigned id = 0; id < 3; id++)
        rounds_join(&at, id, abc[id]);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[0].generation, 8);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_cause");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_failure_before_a_loss_is_its_effect, the_node_that_failed_may_be_lost,
              an_exit_code_after_the_loss_changes_nothing, who_has_fenced_itself_explains_it,
              both_at_once, an_effect_is_no_part_of_a_crash_loop,
              the_forgotten_are_given_time_to_end, there_is_still_time_to_settle,
              what_the_store_remembers_needs_no_time);
    tcase_add_loop_test(tcase, not_every_departure_is_a_loss, 0, 3);
    tcase_add_loop_test(tcase, a_final_failure_keeps_its_verdict, 0, 2);
    tcase_add_loop_test(tcase, a_wish_to_stop_waits_for_the_verdict, 0, 3);
    tcase_add_loop_test(tcase, a_restart_does_not_forget_to_judge, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
