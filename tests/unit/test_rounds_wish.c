/*
 * test_rounds_wish.c - the round machine and what users want of it, and a server that starts again.
 */
#include "check_main.h"
#include "failmem.h"
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

/* ---- what people want ---- */

START_TEST(stopped_by_request)
{
    if (_i != 0)
        rounds_run(&at, 2, abc);
    if (_i == 2)
        rounds_gone(&at, 0);
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.stop = true});
    rounds_step(&at);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 143, "stopped by request");
}
END_TEST

START_TEST(drained_nodes_go_and_may_come_back)
{
    rounds_run(&at, 3, abc);
    ck_assert_int_eq(ddpi_rounds_drain(at.rounds, "b", true), DDP_OK);
    rounds_step(&at);
    rounds_assert_seat(&at, 1, DDP_ROUND_STOP, "node b is drained");
    ck_assert(!at.seat[1].failed);
    rounds_obey(&at, 3);
    rounds_assert_seat(&at, 1, DDP_ROUND_END, "drained");
    ck_assert_int_eq(at.seat[1].exit_code, 0);
    ck_assert_uint_eq(at.seat[0].nodes, 2);
    rounds_gone(&at, 1);
    rounds_join(&at, 1, "b");
    rounds_assert_seat(&at, 1, DDP_ROUND_END, "drained");
    rounds_gone(&at, 1);
    ck_assert_int_eq(ddpi_rounds_drain(at.rounds, "b", false), DDP_OK);
    rounds_join(&at, 1, "b");
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "node b joins");
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[1].nodes, 3);
}
END_TEST

START_TEST(drained_below_the_minimum_ends_the_job)
{
    rounds_run(&at, 2, abc);
    ck_assert_int_eq(ddpi_rounds_drain(at.rounds, "a", true), DDP_OK);
    rounds_step(&at);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 143, "node a was drained, and 1 of at least 2 nodes is left");
    ck_assert_int_eq(at.seat[0].exit_code, 0);
    ck_assert_int_eq(at.seat[1].exit_code, 143);
}
END_TEST

START_TEST(a_drained_node_that_is_done_stops_nobody)
{
    rounds_run(&at, 2, abc);
    rounds_say(&at, 0, DDP_ROUND_DONE, 1);
    ck_assert_int_eq(ddpi_rounds_drain(at.rounds, "a", true), DDP_OK);
    rounds_step(&at);
    rounds_assert_seat(&at, 0, DDP_ROUND_END, "drained");
    rounds_gone(&at, 0);
    rounds_say(&at, 1, DDP_ROUND_DONE, 1);
    rounds_assert_closed(&at, 0, "ended well");
}
END_TEST

START_TEST(the_job_is_scaled)
{
    rounds_run(&at, 3, abc);
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.max_nodes = 1});
    rounds_step(&at);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "scaled from 3 to at most 1 nodes");
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[0].nodes, 1);
    rounds_assert_seat(&at, 1, DDP_ROUND_WAIT, "all 1 seats are taken");
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.min_nodes = 4});
    rounds_step(&at);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "scaled from 1 to at least 4 nodes");
    rounds_obey(&at, 3);
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, "waiting for 1 more node: 3 of at least 4 are here");
    rounds_join(&at, 3, "d");
    ck_assert_uint_eq(at.seat[3].nodes, 4);
}
END_TEST

START_TEST(terms_must_agree)
{
    rounds_join(&at, 0, "a");
    at.terms.max_nodes = 5;
    rounds_join(&at, 1, "b");
    rounds_assert_seat(&at, 1, DDP_ROUND_END, "--nnodes is 2:5 on this node and 2:3 in");
    rounds_step_after(&at, 1000);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "waiting for 1 more node");
    ck_assert_str_eq(at.seat[0].notice,
                     "node b came with --nnodes=2:5 and was refused; this job has --nnodes=2:3");
    ck_assert_int_eq(at.seat[1].exit_code, 78);
    at.terms.max_nodes = 3;
    at.terms.join = DDP_ROUND_JOIN_NEVER;
    rounds_join(&at, 2, "c");
    rounds_assert_seat(&at, 2, DDP_ROUND_END,
                       "--join-policy is never on this node and now in the job");
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_gone(&at, 0); /* refused members do not count: the next one sets the terms */
    rounds_join(&at, 3, "d");
    rounds_assert_seat(&at, 3, DDP_ROUND_WAIT, "1 of at least 2");
    ck_assert_int_eq(rounds_summary(&at).terms.join, DDP_ROUND_JOIN_NEVER);
}
END_TEST

static void comes_with(struct ddp_round_terms terms, const char *says)
{
    struct ddp_round_terms job = at.terms;
    at.terms = terms;
    rounds_join(&at, 1, "b");
    rounds_step_after(&at, 1000);
    ck_assert_str_eq(at.seat[0].notice, says);
    rounds_gone(&at, 1);
    at.terms = job;
}

START_TEST(who_waits_hears_of_the_refused)
{
    at.terms = (struct ddp_round_terms){2, 2, 3, 100, 3000, 5, DDP_ROUND_JOIN_NOW, 0, false};
    rounds_join(&at, 0, "a");
    ck_assert_str_eq(ddpi_rounds_waiting_node(at.rounds), "a");
    comes_with((struct ddp_round_terms){3, 3, 3, 100, 3000, 5, DDP_ROUND_JOIN_NOW, 0, false},
               "node b came with --nnodes=3 and was refused; this job has --nnodes=2");
    comes_with((struct ddp_round_terms){2, 2, 0, 100, 3000, 5, DDP_ROUND_JOIN_NOW, 0, false},
               "node b came with --max-restarts=0 and was refused; this job has --max-restarts=3");
    comes_with((struct ddp_round_terms){2, 2, 3, 0, 3000, 5, DDP_ROUND_JOIN_NOW, 0, false},
               "node b came with --settle=0ms and was refused; this job has --settle=100ms");
    comes_with((struct ddp_round_terms){2, 2, 3, 100, 3000, 5, DDP_ROUND_JOIN_NOW, 0, true},
               "node b came with --tf-config=on and was refused; this job has --tf-config=off");
    comes_with((struct ddp_round_terms){2, 2, 3, 100, 3000, 5, DDP_ROUND_JOIN_CHECKPOINT, 0, false},
               "node b came with --join-policy=checkpoint and was refused; this job has "
               "--join-policy=now");
    rounds_join(&at, 1, "b");
    ck_assert_int_eq(at.seat[0].order, DDP_ROUND_RUN);
    ck_assert_str_eq(at.seat[0].notice, "");
    ck_assert_ptr_null(ddpi_rounds_waiting_node(at.rounds));
    rounds_obey(&at, 2);
    rounds_gone(&at, 1);
    rounds_obey(&at, 2);
    rounds_assert_seat(&at, 0, DDP_ROUND_WAIT, "waiting for 1 more node");
    ck_assert_str_eq(at.seat[0].notice, "");
    ck_assert_ptr_null(ddpi_rounds_waiting_node(at.rounds)); /* it is known: it has run */
}
END_TEST

/* ---- roles and commands ---- */

static void seated_in_role(unsigned id, uint32_t first, uint32_t size)
{
    ck_assert_uint_eq(at.seat[id].role_first_rank, first);
    ck_assert_uint_eq(at.seat[id].role_world_size, size);
}

/* Members have two workers each. */
START_TEST(ranks_are_counted_in_each_role)
{
    static const char *const roles[] = {"trainer", "ps", "trainer", "", "trainer"};
    at.terms.min_nodes = at.terms.max_nodes = 5;
    for (unsigned id = 0; id < 5; id++) {
        char name[2] = {(char)('a' + id), '\0'};
        (void)snprintf(at.role, sizeof at.role, "%s", roles[id]);
        rounds_join(&at, id, name);
    }
    seated_in_role(0, 0, 6);
    seated_in_role(1, 0, 2);
    seated_in_role(2, 2, 6);
    seated_in_role(3, 0, 2);
    seated_in_role(4, 4, 6);
    for (unsigned id = 0; id < 5; id++) {
        ck_assert_uint_eq(at.seat[id].first_rank, 2 * id);
        ck_assert_uint_eq(at.seat[id].most_workers, 2);
    }
}
END_TEST

static void join_with(unsigned id, const char *role, const char *command)
{
    char name[2] = {(char)('a' + id), '\0'};
    (void)snprintf(at.role, sizeof at.role, "%s", role);
    (void)snprintf(at.command, sizeof at.command, "%s", command);
    rounds_join(&at, id, name);
}

START_TEST(nodes_with_different_commands_are_told)
{
    static const char *const told[] = {
        "node c runs 'two'",   "", "node a runs 'one'", "", "node f runs 'four'",
        "node e runs 'three'", ""};
    at.terms.min_nodes = at.terms.max_nodes = 7;
    join_with(0, "trainer", "one");
    join_with(1, "trainer", "one");
    join_with(2, "trainer", "two");
    join_with(3, "trainer", ""); /* an agent that does not tell */
    join_with(4, "ps", "three");
    join_with(5, "ps", "four");
    join_with(6, "alone", "five");
    for (unsigned round = 1; round <= 2; round++) {
        for (unsigned id = 0; id < 7; id++) {
            ck_assert_int_eq(at.seat[id].order, DDP_ROUND_RUN);
            ck_assert_uint_eq(at.seat[id].generation, round);
            ck_assert_str_eq(at.seat[id].text, told[id]);
        }
        rounds_obey(&at, 7);
        rounds_fail(&at, 0, 3, 60000);
        rounds_obey(&at, 7);
    }
}
END_TEST

/* ---- summary, restart ---- */

START_TEST(a_recovery_is_timed)
{
    rounds_run(&at, 3, abc);
    struct ddpi_rounds_summary summary = rounds_summary(&at);
    ck_assert_uint_eq(summary.seated_ms, 0);
    ck_assert_uint_eq(summary.world_size, 6);
    ck_assert_uint_eq(summary.seated, 3);
    rounds_gone(&at, 0);
    at.now_ms += 20;
    rounds_say(&at, 1, DDP_ROUND_IDLE, 1);
    at.now_ms += 5;
    rounds_say(&at, 2, DDP_ROUND_IDLE, 1);
    at.now_ms += 30;
    rounds_obey(&at, 3);
    summary = rounds_summary(&at);
    ck_assert_uint_eq(summary.idle_ms, 25);
    ck_assert_uint_eq(summary.seated_ms, 25);
    ck_assert_uint_eq(summary.running_ms, 55);
    ck_assert_str_eq(summary.reason, "node a is lost");
}
END_TEST

/* In each state, a restored machine tells its members nothing new, and continues. */
START_TEST(a_server_that_starts_again_goes_on)
{
    for (unsigned id = 0; id < 2; id++)
        rounds_join(&at, id, abc[id]);
    rounds_step_after(&at, 50);
    rounds_restart(&at);
    rounds_step(&at);
    rounds_step_after(&at, 1000);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_obey(&at, 2);
    unsigned told = at.told_all;
    rounds_restart(&at);
    rounds_step(&at);
    ck_assert_uint_eq(at.told_all, told);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    rounds_fail(&at, 0, 3, 10);
    told = at.told_all;
    rounds_restart(&at);
    rounds_step(&at);
    rounds_assert_state(&at, ROUNDS_STOPPING);
    ck_assert_uint_eq(at.told_all, told);
    rounds_obey(&at, 2);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[0].generation, 2);
    ck_assert_uint_eq(at.seat[0].restarts, 1);
    rounds_gone(&at, 0);
    rounds_obey(&at, 2);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_restart(&at);
    rounds_join(&at, 0, "0");
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[1].node_rank, 0); /* was there before */
    ck_assert_uint_eq(at.seat[1].generation, 3);
    rounds_say(&at, 0, DDP_ROUND_DONE, 3);
    rounds_say(&at, 1, DDP_ROUND_DONE, 3);
    rounds_restart(&at);
    rounds_step(&at);
    rounds_assert_closed(&at, 0, "ended well");
    rounds_join(&at, 2, "c");
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, "of the job before this one");
}
END_TEST

START_TEST(an_exit_code_may_come_after_a_restart)
{
    at.terms.max_restarts = 0;
    rounds_run(&at, 2, abc);
    rounds_fail(&at, 0, -1, 10);
    rounds_restart(&at);
    rounds_fail(&at, 0, 9, 10);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 9, "rank 0 on node a failed: 9");
}
END_TEST

START_TEST(whoever_was_lost_meanwhile_is_missed)
{
    rounds_run(&at, 3, abc);
    at.says[1].name[0] = '\0';
    rounds_restart(&at);
    rounds_step(&at);
    rounds_assert_seat(&at, 0, DDP_ROUND_STOP, "lost while the server was away");
    rounds_obey(&at, 3);
    ck_assert_uint_eq(at.seat[0].nodes, 2);
}
END_TEST

/* The server ended while it told the members to run, or to stop. */
START_TEST(what_was_told_by_halves_is_undone)
{
    static const struct ddp_round_seat none;
    for (unsigned id = 0; id < 2; id++)
        rounds_join(&at, id, abc[id]);
    struct ddpi_rounds_summary before = rounds_summary(&at);
    struct ddp_round_seat waiting = at.seat[1];
    rounds_join(&at, 2, "c");
    if (_i == 0) {
        at.seat[1] = waiting; /* has not been told to run */
    } else if (_i == 2) {
        rounds_obey(&at, 3);
        before = rounds_summary(&at);
        rounds_gone(&at, 2);
        at.seat[0].order = DDP_ROUND_RUN; /* has not been told to stop */
    }
    ddpi_rounds_destroy(at.rounds);
    at.rounds = ddpi_rounds_create(&at.hooks, 0);
    ddpi_rounds_restore(at.rounds, &before);
    for (unsigned id = 0; id < (_i == 2 ? 2 : 3); id++) {
        ck_assert_int_eq(ddpi_rounds_member(at.rounds, id, &at.says[id]), DDP_OK);
        if (memcmp(&at.seat[id], &none, sizeof none) != 0)
            ddpi_rounds_restore_seat(at.rounds, id, &at.seat[id]);
    }
    rounds_step(&at);
    if (_i == 1) { /* all had been told, but the summary was not stored */
        rounds_assert_state(&at, ROUNDS_RUNNING);
        ck_assert_uint_eq(rounds_summary(&at).world_size, 6);
        return;
    }
    rounds_assert_state(&at, ROUNDS_STOPPING);
    rounds_obey(&at, 3);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[0].generation, 2);
    ck_assert_uint_eq(at.seat[0].nodes, _i == 0 ? 3 : 2);
}
END_TEST

/* ---- a job after the job ---- */

/* Two members that are told to end, the second failed; three that come after that, with other
 * terms, of which the last is not like its peers. */
static void close_and_queue(void)
{
    at.terms.max_restarts = 1;
    at.terms.crash_loop = 2;
    rounds_run(&at, 2, abc);
    at.says[1].failure.broken_program = true;
    rounds_fail(&at, 1, 3, 100);
    rounds_obey(&at, 2);
    rounds_obey(&at, 2);
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.max_nodes = 2});
    ck_assert_int_eq(ddpi_rounds_drain(at.rounds, "e", true), DDP_OK);
    rounds_fail(&at, 1, 3, 100);
    rounds_obey(&at, 2);
    rounds_assert_closed(&at, 93, "cannot run as it is");
    ddpi_rounds_wish(at.rounds, &(struct ddpi_rounds_wish){.stop = true, .max_nodes = 2});
    rounds_step_after(&at, 1000);
    at.terms.max_restarts = 5;
    rounds_join(&at, 2, "d");
    rounds_join(&at, 3, "e");
    at.terms.max_nodes = 7;
    rounds_join(&at, 4, "f");
}

START_TEST(who_comes_too_late_waits_for_the_next)
{
    close_and_queue();
    if (_i == 1) {
        rounds_restart(&at);
        rounds_step(&at);
    }
    for (unsigned id = 2; id < 5; id++) {
        rounds_assert_seat(&at, id, DDP_ROUND_WAIT,
                           "waiting for the last 2 nodes of the job before this one to leave");
        ck_assert(!at.seat[id].spare);
    }
    rounds_assert_closed(&at, 93, "cannot run as it is");
    rounds_gone(&at, 0);
    rounds_step_after(&at, 1000);
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, "the last 1 node of");
    if (_i == 1) {
        ddpi_rounds_gone(at.rounds, 1); /* the last goes while no server is there */
        at.says[1].name[0] = '\0';
        rounds_restart(&at);
        rounds_step(&at);
    } else {
        rounds_gone(&at, 1);
    }
    rounds_assert_state(&at, ROUNDS_FORMING);
    struct ddpi_rounds_summary summary = rounds_summary(&at);
    ck_assert(summary.generation == 0 && summary.restarts == 0 && summary.exit_code == 0);
    ck_assert(!summary.closing && summary.reason[0] == '\0' && summary.idle_ms == 0);
    ck_assert_uint_eq(summary.terms.max_restarts, 5);
    rounds_assert_seat(&at, 4, DDP_ROUND_END, "--nnodes is 2:7 on this node and 2:3 in the job");
    rounds_assert_seat(&at, 2, DDP_ROUND_WAIT, "waiting up to 0.1 s for more nodes");
    ck_assert_uint_eq(ddpi_rounds_deadline(at.rounds), at.now_ms + 100);
    if (_i == 2)
        rounds_restart(&at);
    rounds_step(&at);
    rounds_step_after(&at, 100);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert(at.seat[3].generation == 3 && at.seat[3].nodes == 2 && at.seat[3].restarts == 0);
    rounds_obey(&at, 4);
    rounds_fail(&at, 3, 3, 100); /* as often as before, but for the first time */
    rounds_obey(&at, 4);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(rounds_summary(&at).restarts, 1);
}
END_TEST

/* What the machine has ended itself needs no lease; what runs on a newcomer must end first. */
START_TEST(the_next_knows_what_has_ended)
{
    at.terms.lease_ms = 60000;
    rounds_run(&at, 2, abc);
    rounds_say(&at, 0, DDP_ROUND_DONE, 1);
    rounds_say(&at, 1, DDP_ROUND_DONE, 1);
    rounds_assert_closed(&at, 0, "ended well");
    for (unsigned id = 2; id < 5; id++)
        rounds_join(&at, id, abc[id - 2]);
    rounds_say(&at, 2, DDP_ROUND_IDLE, 1);
    rounds_say(&at, 3, DDP_ROUND_RUNNING, 1);
    rounds_assert_seat(&at, 3, DDP_ROUND_STOP, "this node has no seat");
    rounds_restart(&at);
    rounds_gone(&at, 0);
    rounds_gone(&at, 1);
    rounds_assert_state(&at, ROUNDS_FORMING);
    rounds_say(&at, 3, DDP_ROUND_IDLE, 1);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.seat[2].generation, 2);
    ck_assert_uint_eq(at.seat[2].nodes, 3);
}
END_TEST

/* The next job's first seats were stored, and the server ended before its state was. */
START_TEST(a_next_job_that_was_stored_by_halves)
{
    close_and_queue();
    rounds_gone(&at, 0);
    struct ddpi_rounds_summary before = rounds_summary(&at);
    rounds_gone(&at, 1);
    rounds_gone(&at, 4);
    rounds_step_after(&at, 100);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ddpi_rounds_destroy(at.rounds);
    at.rounds = ddpi_rounds_create(&at.hooks, at.begun_generation);
    ddpi_rounds_restore(at.rounds, &before);
    for (unsigned id = 2; id < 4; id++) {
        ck_assert_int_eq(ddpi_rounds_member(at.rounds, id, &at.says[id]), DDP_OK);
        ddpi_rounds_restore_seat(at.rounds, id, &at.seat[id]);
    }
    unsigned told = at.told_all;
    rounds_step(&at);
    rounds_assert_state(&at, ROUNDS_RUNNING);
    ck_assert_uint_eq(at.told_all, told);
    ck_assert_uint_eq(rounds_summary(&at).generation, 3);
    ck_assert_uint_eq(rounds_summary(&at).terms.max_restarts, 5);
}
END_TEST

/* Whatever cannot be had, is not noted; it can be said again. */
START_TEST(memory_may_be_short)
{
    unsigned successes = 0;
    bool failed = true;
    for (; failed; successes++) {
        failmem_start(successes);
        struct ddpi_rounds *rounds = ddpi_rounds_create(&at.hooks, 0);
        ddp_status joined = DDP_E_NOMEM, drained = DDP_E_NOMEM;
        const struct ddp_round_member says = {.name = "a", .terms = at.terms};
        if (rounds != NULL) {
            joined = ddpi_rounds_member(rounds, 1, &says);
            drained = ddpi_rounds_drain(rounds, "a", true);
        }
        failed = failmem_stop();
        ck_assert_int_eq(failed, joined != DDP_OK || drained != DDP_OK);
        if (rounds != NULL) {
            ck_assert_int_eq(ddpi_rounds_member(rounds, 1, &says), DDP_OK);
            ck_assert_int_eq(ddpi_rounds_drain(rounds, "a", true), DDP_OK);
            ddpi_rounds_step(rounds, at.now_ms);
            rounds_assert_seat(&at, 1, DDP_ROUND_END, "drained");
            memset(&at.seat[1], 0, sizeof at.seat[1]);
        }
        ddpi_rounds_destroy(rounds);
    }
    ck_assert_uint_ge(successes, 5);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_more");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, drained_nodes_go_and_may_come_back, drained_below_the_minimum_ends_the_job,
              a_drained_node_that_is_done_stops_nobody, the_job_is_scaled, terms_must_agree,
              who_waits_hears_of_the_refused, ranks_are_counted_in_each_role,
              nodes_with_different_commands_are_told, a_recovery_is_timed,
              a_server_that_starts_again_goes_on, an_exit_code_may_come_after_a_restart,
              whoever_was_lost_meanwhile_is_missed, the_next_knows_what_has_ended,
              a_next_job_that_was_stored_by_halves, memory_may_be_short);
    tcase_add_loop_test(tcase, stopped_by_request, 0, 3);
    tcase_add_loop_test(tcase, who_comes_too_late_waits_for_the_next, 0, 3);
    tcase_add_loop_test(tcase, what_was_told_by_halves_is_undone, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
