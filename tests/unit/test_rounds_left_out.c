/*
 * test_rounds_left_out.c - nodes that are not fit: those whose check fails, and those that were the
 * first cause of too many failures in a row. They get no seat, cost no restart, and come back when
 * they are admitted.
 */
#include "check_main.h"
#include "rounds_fixture.h"

#include <string.h>

static const char *const abcd[] = {"a", "b", "c", "d"};
static struct rounds_fixture at;

static void setup(void)
{
    rounds_start(&at);
}

static void teardown(void)
{
    rounds_finish(&at);
}

/* Three of "a", "b", "c" and "d" have a seat. */
static void run_four(void)
{
    for (unsigned id = 0; id < 4; id++)
        rounds_join(&at, id, abcd[id]);
    rounds_obey(&at, 4);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert(at.seat[3].spare);
}

static void assert_runs(uint64_t generation, uint32_t nodes, uint32_t restarts)
{
    struct ddpi_rounds_summary summary = rounds_summary(&at);
    ck_assert_int_eq(summary.state, ROUNDS_RUNNING);
    ck_assert_uint_eq(summary.generation, generation);
    ck_assert_uint_eq(summary.seated, nodes);
    ck_assert_uint_eq(summary.restarts, restarts);
}

/* A worker of node @id fails; all end, and the next generation runs if it can. */
static void fail_after(unsigned id, uint64_t ms)
{
    at.now_ms += ms;
    rounds_fail(&at, id, 7, ms);
    rounds_obey(&at, 4);
    rounds_obey(&at, 4);
}

/* ---- node checks ---- */

START_TEST(who_is_sick_gets_no_seat)
{
    rounds_join(&at, 0, "a");
    rounds_join(&at, 1, "b");
    rounds_checked(&at, 1, "node check failed (exit code 3): no GPU");
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT, "left out: node check failed (exit code 3): no GPU");
    ck_assert(at.seat[1].left_out);
    rounds_step_after(&at, 2000);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT,
                       "waiting for 1 more node: 1 of at least 2 is here; left out: node b (node "
                       "check failed (exit code 3): no GPU)");
    rounds_join(&at, 2, "c");
    rounds_step_after(&at, 100);
    assert_runs(1, 2, 0);
    ck_assert_uint_eq(rounds_summary(&at).left_out, 1);
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT, "left out: node check failed");
    ck_assert(at.seat[1].spare); /* so it may wait for as long as it likes */
    rounds_step_after(&at, 60000);
    assert_runs(1, 2, 0);
}
END_TEST

START_TEST(nothing_begins_while_a_node_is_checked)
{
    rounds_run(&at, 3, abcd);
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.max_nodes = 2});
    rounds_step(&at);
    for (unsigned id = 0; id < 3; id++)
        rounds_check(&at, id, 1);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_checked(&at, 0, "");
    rounds_checked(&at, 1, "");
    rounds_step_after(&at, 2000);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "waiting for node c to end its node check");
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), UINT64_MAX);
    rounds_checked(&at, 2, "");
    assert_runs(2, 2, 0);
}
END_TEST

/* In a job without restarts: the failure was the node's, and another takes its place. */
START_TEST(a_check_that_fails_explains_the_failure)
{
    at.terms.max_restarts = 0;
    run_four();
    rounds_fail(&at, 1, 7, 20000);
    for (unsigned id = 0; id < 3; id++)
        rounds_check(&at, id, 1);
    rounds_assert_state(&at, ROUNDS_STOPPING);
    ck_assert(rounds_summary(&at).judging);
    if (_i == 1)
        rounds_restart(&at);
    rounds_checked(&at, 0, "");
    rounds_checked(&at, 2, "");
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_checked(&at, 1, "node check failed (exit code 1)");
    assert_runs(2, 3, 0);
    ck_assert_str_eq(rounds_summary(&at).reason,
                     "node b is left out: node check failed (exit code 1)");
    rounds_assert_seat(&at, 3, DDP_ROUND_RUN, "");
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT, "left out: ");
}
END_TEST

START_TEST(checks_that_pass_change_no_verdict)
{
    at.terms.max_restarts = (uint32_t)_i;
    run_four();
    rounds_fail(&at, 1, 7, 20000);
    for (unsigned id = 0; id < 3; id++)
        rounds_check(&at, id, 1);
    for (unsigned id = 0; id < 3; id++)
        rounds_checked(&at, id, "");
    if (_i == 0)
        rounds_assert_closed(&at, 7, "node b failed: 7");
    else
        assert_runs(2, 3, 1);
}
END_TEST

/* A final failure, and a wish to stop, wait for no check. */
START_TEST(what_is_decided_waits_for_no_check)
{
    run_four();
    at.says[1].failure.final = _i == 0;
    if (_i != 1)
        rounds_fail(&at, 1, _i == 0 ? 78 : 7, 10);
    if (_i != 0)
        ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.stop = true});
    rounds_step(&at);
    for (unsigned id = 0; id < 3; id++)
        rounds_check(&at, id, 1);
    rounds_assert_closed(&at, _i == 0 ? 78 : 143, _i == 0 ? "failed: 78" : "stopped by request");
}
END_TEST

/* It had ended its workers well, and its check was under way when the next generation began. */
START_TEST(who_turns_out_sick_in_its_seat_loses_it)
{
    run_four();
    rounds_say(&at, 1, DDP_ROUND_DONE, 1);
    rounds_gone(&at, 0);
    rounds_say(&at, 2, DDP_ROUND_IDLE, 1);
    ck_assert_uint_eq(rounds_summary(&at).generation, 2);
    rounds_checked(&at, 1, "node check failed (exit code 1)");
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_obey(&at, 4);
    rounds_obey(&at, 4);
    assert_runs(3, 2, 0);
    ck_assert_str_eq(rounds_summary(&at).reason,
                     "node b is left out: node check failed (exit code 1)");
}
END_TEST

START_TEST(a_sick_node_that_is_admitted_checks_again)
{
    rounds_run(&at, 3, abcd);
    rounds_join(&at, 3, "d");
    rounds_checked(&at, 3, "node check failed (exit code 1)");
    ck_assert_uint_eq(at.seat[3].check, 0);
    ddpi_rounds_admit(at.rounds, "d");
    rounds_step(&at);
    ck_assert_uint_eq(at.seat[3].check, 2);
    if (_i == 1) {
        rounds_restart(&at);
        rounds_step(&at);
        ck_assert_uint_eq(at.seat[3].check, 2);
    }
    rounds_checked(&at, 3, "node check failed (exit code 2)");
    ck_assert(at.seat[3].left_out);
    ddpi_rounds_admit(at.rounds, "d");
    rounds_step(&at);
    ck_assert_uint_eq(at.seat[3].check, 3);
    rounds_checked(&at, 3, "");
    ck_assert(!at.seat[3].left_out);
    rounds_assert_seat(&at, 3, DDP_ROUND_WAIT, "this node is a spare");
    rounds_gone(&at, 0);
    rounds_obey(&at, 4);
    rounds_obey(&at, 4);
    assert_runs(2, 3, 0);
}
END_TEST

START_TEST(a_job_of_one_sick_node_ends)
{
    at.terms.min_nodes = at.terms.max_nodes = 1;
    rounds_join(&at, 0, "a"); /* seated at once */
    rounds_obey(&at, 1);
    rounds_fail(&at, 0, 7, 10);
    rounds_check(&at, 0, 1);
    rounds_checked(&at, 0, "node check failed (exit code 3): no GPU");
    rounds_assert_closed(&at, 78,
                         "node a is left out, and the job has no other: node check failed "
                         "(exit code 3): no GPU");
    ck_assert_uint_eq(rounds_summary(&at).restarts, 0);
}
END_TEST

/* A node that is left out is not needed: the job does not end as if it had been. */
START_TEST(who_is_left_out_may_leave)
{
    rounds_join(&at, 0, "a");
    rounds_join(&at, 1, "b");
    rounds_join(&at, 2, "c");
    rounds_obey(&at, 3);
    fail_after(2, 5);
    rounds_obey(&at, 3);
    rounds_join(&at, 3, "d");
    rounds_checked(&at, 3, "node check failed (exit code 1)");
    rounds_leave(&at, 3);
    rounds_gone(&at, 3);
    assert_runs(2, 3, 1);
    ck_assert_uint_eq(rounds_summary(&at).left_out, 0);
}
END_TEST

/* ---- quarantine ---- */

START_TEST(failures_in_a_row_lead_to_quarantine)
{
    at.terms.quarantine = 3;
    at.terms.max_restarts = 2;
    run_four();
    fail_after(1, 10);
    fail_after(1, 30000); /* however long it ran */
    assert_runs(3, 3, 2);
    ck_assert_uint_eq(rounds_blame(&at, "b")->failures, 2);
    if (_i == 1) {
        rounds_restart(&at);
        rounds_step(&at);
    }
    fail_after(1, 10); /* costs nothing, though no restart is left */
    assert_runs(4, 3, 2);
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT,
                       "left out: first cause of 3 failures in a row: rank 2 on node b failed: 7");
    rounds_assert_seat(&at, 3, DDP_ROUND_RUN, "");
    ck_assert_msg(strstr(rounds_summary(&at).reason,
                         "node b is left out: first cause of 3 failures in a row: ") != NULL,
                  "'%s'", rounds_summary(&at).reason);
    ck_assert_uint_eq(rounds_summary(&at).left_out, 1);
    fail_after(0, 10);
    rounds_assert_closed(&at, 7, "node a failed: 7");
}
END_TEST

/* Also by another member of the same name, and a restarted server. */
START_TEST(quarantine_belongs_to_the_name)
{
    at.terms.quarantine = 1;
    run_four();
    fail_after(1, 10);
    rounds_gone(&at, 1);
    rounds_restart(&at);
    rounds_step(&at);
    rounds_join(&at, 5, "b");
    rounds_assert_seat(&at, 5, DDP_ROUND_WAIT, "left out: first cause of 1 failure in a row: ");
    rounds_gone(&at, 0);
    rounds_obey(&at, 6);
    rounds_obey(&at, 6);
    assert_runs(3, 2, 0);
    ddpi_rounds_admit(at.rounds, "b");
    rounds_step(&at);
    ck_assert_ptr_null(rounds_blame(&at, "b"));
    rounds_assert_state(&at, ROUNDS_STOPPING); /* "b" joins */
    rounds_obey(&at, 6);
    rounds_obey(&at, 6);
    assert_runs(4, 3, 0);
}
END_TEST

/* What breaks the row: a generation that ran for 10 s, and ended otherwise or by another. */
START_TEST(a_generation_that_ran_speaks_for_its_nodes)
{
    const bool breaks = _i == 1 || _i == 3;
    at.terms.quarantine = 2;
    at.terms.max_restarts = 9;
    run_four();
    fail_after(1, 10);
    const uint64_t ms = breaks ? 10000 : 9999;
    if (_i < 2) {
        fail_after(0, ms);
    } else {
        at.now_ms += ms;
        rounds_gone(&at, 0);
        rounds_obey(&at, 4);
        rounds_obey(&at, 4);
    }
    ck_assert((rounds_blame(&at, "b") == NULL) == breaks);
    fail_after(1, 10);
    ck_assert(rounds_blame(&at, "b")->left_out == !breaks);
}
END_TEST

/* Two that fail by turns are both found. */
START_TEST(failures_by_turns)
{
    at.terms.quarantine = 2;
    at.terms.max_restarts = 9;
    run_four();
    fail_after(0, 10);
    fail_after(1, 10);
    fail_after(0, 10);
    ck_assert(rounds_blame(&at, "a")->left_out);
    fail_after(1, 10);
    ck_assert(rounds_blame(&at, "b")->left_out);
    assert_runs(5, 2, 2);
}
END_TEST

/* A failure that is an effect is held against nobody. */
START_TEST(effects_are_not_counted)
{
    at.terms.quarantine = 1;
    run_four();
    rounds_fail(&at, 1, 7, 10);
    rounds_gone(&at, 0);
    rounds_obey(&at, 4);
    rounds_obey(&at, 4);
    ck_assert_ptr_null(rounds_blame(&at, "b"));
    assert_runs(2, 3, 0);
}
END_TEST

START_TEST(too_few_wait_for_others)
{
    at.terms.quarantine = 1;
    at.terms.max_restarts = 0;
    rounds_join(&at, 0, "a");
    rounds_join(&at, 1, "b");
    rounds_step_after(&at, 100);
    rounds_obey(&at, 2);
    fail_after(1, 10);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "left out: node b (first cause of 1 failure");
    ck_assert(!at.seat[1].spare); /* so each gives up after its --join-timeout */
    rounds_gone(&at, 1);
    rounds_step_after(&at, 2000); /* it is still said why the others wait */
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "left out: node b (first cause of 1 failure");
    rounds_join(&at, 2, "c");
    rounds_step_after(&at, 100);
    assert_runs(2, 2, 0);
}
END_TEST

START_TEST(a_job_of_one_node_in_quarantine_ends)
{
    at.terms = (struct ddp_round_terms){.min_nodes = 1, .max_nodes = 1, .max_restarts = 9};
    at.terms.quarantine = 2;
    rounds_join(&at, 0, "a");
    rounds_obey(&at, 1);
    fail_after(0, 10);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    fail_after(0, 10);
    rounds_assert_closed(&at, 7, "node a is left out, and the job has no other: first cause of 2");
}
END_TEST

/* A worker that fails wherever it runs is the program's fault. */
START_TEST(a_crash_loop_is_found_all_the_same)
{
    at.terms.quarantine = 2;
    at.terms.crash_loop = 3;
    at.terms.max_restarts = 9;
    run_four();
    at.says[0].failure.broken_program = at.says[1].failure.broken_program = true;
    fail_after(0, 10);
    fail_after(0, 10);
    assert_runs(3, 3, 1);
    fail_after(1, 10);
    rounds_assert_closed(&at, 93, "rank 0 on node b failed 3 times in a row");
}
END_TEST

START_TEST(the_next_job_holds_nothing_against_anybody)
{
    at.terms.quarantine = 1;
    at.terms.max_restarts = 0;
    run_four();
    fail_after(1, 10);
    fail_after(0, 10);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.stop = true});
    rounds_step(&at);
    rounds_obey(&at, 4);
    rounds_assert_state(&at, ROUNDS_CLOSED);
    rounds_join(&at, 5, "b");
    rounds_join(&at, 6, "a");
    for (unsigned id = 0; id < 4; id++)
        rounds_gone(&at, id);
    rounds_step_after(&at, 100);
    ck_assert_int_eq(at.seat[5].order, DDP_ROUND_RUN);
    ck_assert_int_eq(at.seat[6].order, DDP_ROUND_RUN);
    ck_assert_uint_eq(rounds_summary(&at).left_out, 0);
}
END_TEST

START_TEST(terms_must_agree)
{
    rounds_join(&at, 0, "a");
    at.terms.quarantine = 3;
    rounds_join(&at, 1, "b");
    rounds_assert_seat(&at, 1, DDP_ROUND_END, "--quarantine is 3 on this node and 0 in the job");
}
END_TEST

/* All that fit into a sentence are named, and the others are counted. */
START_TEST(many_are_left_out)
{
    at.terms.min_nodes = at.terms.max_nodes = 14;
    for (unsigned id = 0; id < 14; id++) {
        char name[3] = {'n', (char)('a' + id), '\0'};
        rounds_join(&at, id, name);
        if (id < 10)
            rounds_checked(&at, id, "node check failed (exit code 1)");
    }
    rounds_step_after(&at, 2000);
    const char *text = at.seat[13].text;
    ck_assert_msg(strstr(text, "10 more nodes: 4 of at least 14 are here; left out: node na (") !=
                      NULL,
                  "'%s'", text);
    ck_assert_msg(strstr(text, ", and 8 more") != NULL && strlen(text) < DDP_ROUND_TEXT_SIZE,
                  "'%s'", text);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_left_out");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, who_is_sick_gets_no_seat, nothing_begins_while_a_node_is_checked,
              who_turns_out_sick_in_its_seat_loses_it, a_job_of_one_sick_node_ends,
              who_is_left_out_may_leave, quarantine_belongs_to_the_name, failures_by_turns,
              effects_are_not_counted, too_few_wait_for_others,
              a_job_of_one_node_in_quarantine_ends, a_crash_loop_is_found_all_the_same,
              the_next_job_holds_nothing_against_anybody, terms_must_agree, many_are_left_out);
    tcase_add_loop_test(tcase, a_check_that_fails_explains_the_failure, 0, 2);
    tcase_add_loop_test(tcase, checks_that_pass_change_no_verdict, 0, 2);
    tcase_add_loop_test(tcase, what_is_decided_waits_for_no_check, 0, 3);
    tcase_add_loop_test(tcase, a_sick_node_that_is_admitted_checks_again, 0, 2);
    tcase_add_loop_test(tcase, failures_in_a_row_lead_to_quarantine, 0, 2);
    tcase_add_loop_test(tcase, a_generation_that_ran_speaks_for_its_nodes, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
