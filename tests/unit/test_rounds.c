/*
 * test_rounds.c - the rules by which the round machine begins and stops generations, one by one,
 * and their cost.
 */
#include "check_main.h"
#include "rounds_fixture.h"

#include <stdio.h>
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

/* ---- forming ---- */

START_TEST(the_table_is_valid)
{
    ck_assert(ddpi_sm_table_valid(&ddpi_rounds_sm));
    rounds_assert_state(&at, ROUNDS_FORMING);
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), UINT64_MAX);
    ddpi_rounds_destroy(NULL);
}
END_TEST

START_TEST(names_sort_as_people_do)
{
    static const char *const names[] = {"",     "a",      "a2b",   "a10a",  "a10b",
                                        "node", "node01", "node1", "node9", "node10",
                                        "x9y9", "x9y10",  "x010y1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            int order = ddpi_rounds_compare_names(names[i], names[j]);
            ck_assert_int_eq((order > 0) - (order < 0), (i > j) - (i < j));
        }
}
END_TEST

START_TEST(as_many_as_can_be_are_seated_at_once)
{
    rounds_join(&at, 0, "node10");
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "waiting for 1 more node: 1 of at least 2 is here");
    rounds_join(&at, 1, "node9");
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT,
                       "waiting up to 0.1 s for more nodes: 2 of at most 3");
    rounds_join(&at, 2, "node1");
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.begun, 1);
    static const uint32_t ranks[] = {2, 1, 0};
    for (unsigned id = 0; id < 3; id++) {
        ck_assert_int_eq(at.seat[id].order, DDP_ROUND_RUN);
        ck_assert_uint_eq(at.seat[id].generation, 1);
        ck_assert_uint_eq(at.seat[id].node_rank, ranks[id]);
        ck_assert_uint_eq(at.seat[id].first_rank, 2 * ranks[id]);
        ck_assert_uint_eq(at.seat[id].nodes, 3);
        ck_assert_uint_eq(at.seat[id].world_size, 6);
        ck_assert_uint_eq(at.seat[id].master_port, 4711);
        ck_assert_str_eq(at.seat[id].master_address, "");
        ck_assert_str_eq(at.seat[id].text, "");
    }
}
END_TEST

START_TEST(the_time_to_settle_counts_from_the_minimum)
{
    rounds_join(&at, 0, "a");
    rounds_step_after(&at, 500);
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), UINT64_MAX);
    rounds_join(&at, 1, "b");
    uint64_t min_ms = at.now_ms;
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), min_ms + 100);
    rounds_step_after(&at, 60);
    rounds_gone(&at, 1); /* too few again: forgotten */
    rounds_step_after(&at, 60);
    rounds_join(&at, 1, "b");
    rounds_step_after(&at, 99);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_step_after(&at, 1);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[0].nodes, 2);
}
END_TEST

/* Names decide, but before them what a member wishes, and after a round its order. */
START_TEST(ranks_are_stable)
{
    at.says[1].node_rank = 1;
    at.terms.max_nodes = 4;
    rounds_run(&at, 3, (const char *const[]){"b", "z", "c"});
    ck_assert_uint_eq(at.seat[1].node_rank, 0);
    ck_assert_uint_eq(at.seat[0].node_rank, 1);
    ck_assert_uint_eq(at.seat[2].node_rank, 2);
    rounds_join(&at, 3, "a"); /* sorts first, but they have been there before */
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[1].node_rank, 0);
    ck_assert_uint_eq(at.seat[0].node_rank, 1);
    ck_assert_uint_eq(at.seat[2].node_rank, 2);
    ck_assert_uint_eq(at.seat[3].node_rank, 3);
    ck_assert_uint_eq(at.seat[3].generation, 2);
    ck_assert_uint_eq(at.seat[3].restarts, 0);
    rounds_gone(&at, 0);
    rounds_obey(&at, 4);
    ck_assert_uint_eq(at.seat[2].node_rank, 1);
    ck_assert_uint_eq(at.seat[2].first_rank, 2);
    ck_assert_uint_eq(at.seat[3].node_rank, 2);
}
END_TEST

START_TEST(the_first_node_may_be_the_master)
{
    at.says[1].master_port = 29500;
    rounds_run(&at, 2, (const char *const[]){"b", "a"});
    for (unsigned id = 0; id < 2; id++) {
        ck_assert_str_eq(at.seat[id].master_address, "10.0.0.1");
        ck_assert_uint_eq(at.seat[id].master_port, 29500);
    }
}
END_TEST

/* Also where they meet at the store. */
START_TEST(the_first_node_says_where_a_coordinator_may_listen)
{
    at.says[0].first_port = 40000;
    at.says[1].first_port = 40001;
    rounds_run(&at, 2, (const char *const[]){"b", "a"});
    for (unsigned id = 0; id < 2; id++) {
        ck_assert_str_eq(at.seat[id].master_address, "");
        ck_assert_str_eq(at.seat[id].coordinator_address, "10.0.0.1");
        ck_assert_uint_eq(at.seat[id].coordinator_port, 40001);
    }
}
END_TEST

START_TEST(whoever_is_too_many_is_a_spare)
{
    rounds_run(&at, 3, abc);
    rounds_join(&at, 3, "a0");
    rounds_assert_seat(&at, 3, DDP_ROUND_WAIT, "all 3 seats are taken; this node is a spare");
    ck_assert(at.seat[3].spare);
    rounds_gone(&at, 1);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "node b is lost");
    ck_assert(at.seat[0].failed);
    rounds_join(&at, 1, "0");
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[3].node_rank, 2); /* came before the one that is named 0 */
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT, "spare");
    ck_assert_uint_eq(rounds_summary(&at).restarts, 0);
}
END_TEST

START_TEST(nothing_begins_while_anything_runs)
{
    at.says[0] = (struct ddp_round_member){
        .name = "a", .nproc = 1, .terms = at.terms, .phase = DDP_ROUND_RUNNING, .generation = 7};
    ck_assert_int_eq(ddpi_rounds_member(at.rounds, 0, &at.says[0]), DDP_OK);
    rounds_step(&at);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "no seat");
    ck_assert_uint_eq(at.seat[0].generation, 7);
    rounds_join(&at, 1, "b");
    rounds_join(&at, 2, "c");
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, "waiting for node a to end its workers of gen");
    rounds_say(&at, 0, DDP_ROUND_IDLE, 7);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[0].generation, 8); /* after every generation that a member has seen */
}
END_TEST

START_TEST(a_generation_that_cannot_begin_ends_the_job)
{
    at.begin_status = DDP_E_NOMEM;
    for (unsigned id = 0; id < 3; id++)
        rounds_join(&at, id, abc[id]);
    rounds_assert_closed(&at, 1, "generation 1 could not begin: the disk is full");
    rounds_assert_seat(&at, 0, DDP_ROUND_END, "the disk is full");
}
END_TEST

START_TEST(too_many_workers_are_refused)
{
    at.terms.min_nodes = at.terms.max_nodes = 2;
    rounds_join(&at, 0, "a");
    at.says[0].nproc = UINT32_MAX;
    rounds_say(&at, 0, DDP_ROUND_IDLE, 0);
    rounds_join(&at, 1, "b");
    rounds_assert_closed(&at, 1, "2 nodes would have 4294967297 workers");
}
END_TEST

START_TEST(texts_of_those_who_wait_are_told_once_a_second)
{
    at.terms.min_nodes = at.terms.max_nodes = ROUNDS_MEMBERS;
    for (unsigned id = 0; id < 10; id++)
        rounds_join(&at, id, "n");
    ck_assert_uint_le(at.told[0], 2);
    uint64_t deadline_ms = ddpi_rounds_deadline(at.rounds);
    ck_assert_uint_le(deadline_ms, at.now_ms + 1000);
    rounds_step_after(&at, deadline_ms - at.now_ms);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "waiting for 6 more nodes: 10 of at least 16 are");
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), UINT64_MAX);
}
END_TEST

/* ---- running, stopping ---- */

START_TEST(all_done_ends_the_job_well)
{
    rounds_run(&at, 2, abc);
    rounds_say(&at, 0, DDP_ROUND_DONE, 1);
    rounds_join(&at, 2, "c"); /* has nothing to do here */
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_leave(&at, 0);
    rounds_say(&at, 0, DDP_ROUND_IDLE, 1);
    rounds_gone(&at, 0);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_say(&at, 1, DDP_ROUND_DONE, 1);
    rounds_assert_closed(&at, 0, "all workers have ended well");
    ck_assert_int_eq(at.seat[1].order, DDP_ROUND_END);
    ck_assert_int_eq(at.seat[2].order, DDP_ROUND_END);
    rounds_join(&at, 3, "d");
    rounds_assert_seat(&at, 3, DDP_ROUND_WAIT, "the last 2 nodes of the job before this one");
}
END_TEST

START_TEST(only_the_current_generation_is_idle)
{
    for (unsigned id = 0; id < 3; id++)
        rounds_join(&at, id, abc[id]);
    rounds_say(&at, 0, DDP_ROUND_STARTING, 1);
    rounds_gone(&at, 0);
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_say(&at, 1, DDP_ROUND_IDLE, 1);
    rounds_say(&at, 2, DDP_ROUND_IDLE, 0); /* may have started in the meantime */
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_say(&at, 2, DDP_ROUND_RUNNING, 0);
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_say(&at, 2, DDP_ROUND_IDLE, 1);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[2].generation, 2);
}
END_TEST

START_TEST(who_fences_itself_or_leaves_stops_the_generation)
{
    rounds_run(&at, 3, abc);
    rounds_say(&at, 1, DDP_ROUND_IDLE, 1);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "node b has given up its part");
    ck_assert(at.seat[0].failed);
    rounds_obey(&at, 3);
    rounds_obey(&at, 3);
    rounds_leave(&at, 2);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "node c is leaving");
    ck_assert(!at.seat[0].failed);
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[0].generation, 3);
    ck_assert_uint_eq(at.seat[0].nodes, 2);
    ck_assert_uint_eq(rounds_summary(&at).restarts, 0);
}
END_TEST

START_TEST(failures_consume_the_budget_once)
{
    at.terms.max_restarts = 1;
    rounds_run(&at, 3, abc);
    rounds_fail(&at, 1, 7, 20000);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "rank 2 on node b failed: 7");
    ck_assert(at.seat[0].failed);
    rounds_fail(&at, 2, 9, 20000);
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[0].generation, 2);
    ck_assert_uint_eq(at.seat[0].restarts, 1);
    rounds_say(&at, 1, DDP_ROUND_RUNNING, 2); /* with the old failure: nothing */
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_fail(&at, 2, -1, 20000);
    rounds_assert_state(&at, ROUNDS_STOPPING);
    ck_assert(rounds_summary(&at).judging);
    rounds_fail(&at, 0, 3, 20000); /* an effect, not the cause */
    rounds_fail(&at, 2, 137, 20000);
    rounds_obey(&at, 3);
    rounds_assert_closed(&at, 137, "rank 4 on node c failed: 137");
    ck_assert_int_eq(at.seat[0].exit_code, 137);
}
END_TEST

START_TEST(an_exit_code_that_stays_unknown_is_1)
{
    at.terms.max_restarts = 0;
    rounds_run(&at, 2, abc);
    rounds_fail(&at, 0, -1, 20000);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 1, "node a");
}
END_TEST

START_TEST(a_failure_that_is_final_ends_the_job)
{
    rounds_run(&at, 2, abc);
    at.says[1].failure.final = true;
    rounds_fail(&at, 1, 78, 10);
    ck_assert(rounds_summary(&at).judging);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 78, "node b");
}
END_TEST

START_TEST(newcomers_join_as_the_policy_says)
{
    at.terms.join = _i == 0 ? DDP_ROUND_JOIN_CHECKPOINT : DDP_ROUND_JOIN_NEVER;
    rounds_run(&at, 2, abc);
    ddpi_rounds_checkpoint(at.rounds); /* no member waits yet: no effect */
    rounds_step(&at);
    rounds_join(&at, 2, "c");
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, _i == 0 ? "saved their state" : "another reason");
    ddpi_rounds_checkpoint(at.rounds);
    rounds_step(&at);
    if (_i == 0) {
        rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "node c joins");
        ck_assert(!at.seat[0].failed);
    } else {
        rounds_assert_state(&at, ROUNDS_RUNNING);
    }
}
END_TEST

START_TEST(a_lost_node_is_waited_for)
{
    rounds_run(&at, 2, abc);
    rounds_gone(&at, 0);
    rounds_obey(&at, 2);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT, "waiting for 1 more node");
    rounds_step_after(&at, 100000);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_join(&at, 2, "0");
    rounds_assert_state(&at, ROUNDS_RUNNING); /* with no time to settle */
    ck_assert_uint_eq(at.seat[1].node_rank, 0);
}
END_TEST

START_TEST(too_few_after_one_has_left_ends_the_job)
{
    rounds_run(&at, 2, abc);
    rounds_leave(&at, 0);
    rounds_gone(&at, 0);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 130, "node a has left, and 1 of at least 2 nodes is left");
    rounds_assert_seat(&at, 1, DDP_ROUND_END, "node a has left");
}
END_TEST

START_TEST(one_has_left_enough_and_another_is_lost)
{
    rounds_run(&at, 3, abc);
    rounds_leave(&at, 2);
    rounds_step(&at);
    rounds_gone(&at, 1);
    rounds_obey(&at, 1);
    rounds_gone(&at, 2);
    rounds_step(&at);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "waiting for 1 more node");
}
END_TEST

START_TEST(two_leave_together_and_too_few_are_left)
{
    rounds_run(&at, 3, abc);
    rounds_leave(&at, 2);
    rounds_leave(&at, 1);
    rounds_obey(&at, 1);
    rounds_gone(&at, 2);
    rounds_gone(&at, 1);
    rounds_step(&at);
    rounds_assert_closed(&at, 130, "node b has left, and 1 of at least 2 nodes is left");
}
END_TEST

START_TEST(before_the_first_generation_nobody_is_missed)
{
    rounds_join(&at, 0, "a");
    rounds_leave(&at, 0);
    rounds_gone(&at, 0);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_join(&at, 0, "a");
    rounds_join(&at, 1, "b");
    rounds_leave(&at, 0); /* there were enough */
    rounds_assert_closed(&at, 130, "node a has left");
}
END_TEST

/* ---- cost ---- */

static ddp_status begin_anything(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                                 struct ddp_error *err)
{
    (void)ctx, (void)generation, (void)seat, (void)err;
    return DDP_OK;
}

static void count_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    (void)member, (void)seat;
    ++*(unsigned *)ctx;
}

static void count_nothing(void *ctx)
{
    (void)ctx;
}

START_TEST(ten_thousand_are_seated)
{
    enum { MANY = 10000 };
    unsigned told = 0;
    struct ddpi_rounds *rounds = ddpi_rounds_create(
        &(struct ddpi_rounds_hooks){&told, begin_anything, count_seat, count_nothing, NULL}, 0);
    struct ddp_round_member says = {
        .nproc = 8, .node_rank = -1, .terms = {.min_nodes = MANY, .max_nodes = MANY}};
    for (unsigned id = 0; id < MANY - 1; id++) {
        (void)snprintf(says.name, sizeof says.name, "node%u", id * 7919 % MANY);
        ck_assert_int_eq(ddpi_rounds_member(rounds, id, &says), DDP_OK);
        ddpi_rounds_step(rounds, 1);
    }
    ck_assert_uint_lt(told, 2 * MANY);
    told = 0;
    ck_assert_int_eq(ddpi_rounds_member(rounds, MANY, &says), DDP_OK);
    ddpi_rounds_step(rounds, 2);
    ck_assert_uint_eq(told, MANY);
    ddpi_rounds_destroy(rounds);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, the_table_is_valid, names_sort_as_people_do,
              as_many_as_can_be_are_seated_at_once, the_time_to_settle_counts_from_the_minimum,
              ranks_are_stable, the_first_node_may_be_the_master,
              the_first_node_says_where_a_coordinator_may_listen, whoever_is_too_many_is_a_spare,
              nothing_begins_while_anything_runs, a_generation_that_cannot_begin_ends_the_job,
              too_many_workers_are_refused, texts_of_those_who_wait_are_told_once_a_second,
              all_done_ends_the_job_well, only_the_current_generation_is_idle,
              who_fences_itself_or_leaves_stops_the_generation, failures_consume_the_budget_once,
              an_exit_code_that_stays_unknown_is_1, a_failure_that_is_final_ends_the_job,
              a_lost_node_is_waited_for, too_few_after_one_has_left_ends_the_job,
              one_has_left_enough_and_another_is_lost, two_leave_together_and_too_few_are_left,
              before_the_first_generation_nobody_is_missed, ten_thousand_are_seated);
    tcase_add_loop_test(tcase, newcomers_join_as_the_policy_says, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
