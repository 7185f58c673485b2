/*
 * test_member.c - the member's machine: each event in each state, and the fence.
 */
#include "check_main.h"
#include "member.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEASE = 800, JOIN_TIMEOUT = 5000 };

static struct member member;
static char calls[512]; /* the calls of hooks since the last look, one word each */

static char over_why[DDP_ROUND_TEXT_SIZE];

static void note(const char *format, ...) DDP_PRINTF(1, 2);

static void note(const char *format, ...)
{
    size_t used = strlen(calls);
    va_list args;
    va_start(args, format);
    vsnprintf(calls + used, sizeof calls - used, format, args);
    va_end(args);
}

static void on_start(void *ctx, const struct ddp_round_seat *seat)
{
    ck_assert_ptr_eq(ctx, &member);
    note("start%d ", (int)seat->generation);
}

static void on_stop(void *ctx, enum member_stop how, const char *why)
{
    static const char *const names[] = {"orderly", "failed", "kill"};
    ck_assert_ptr_eq(ctx, &member);
    ck_assert_ptr_nonnull(why);
    note("stop-%s ", names[how]);
}

static void on_publish(void *ctx, const struct ddp_round_member *says)
{
    static const char *const names[] = {"idle", "starting", "running", "done"};
    ck_assert_ptr_eq(ctx, &member);
    note("%s%d%s%s ", names[says->phase], (int)says->generation,
         says->failure.generation != 0 ? "!" : "",
         says->checking          ? "-checking"
         : says->sick[0] != '\0' ? "-sick"
         : says->leaving         ? "-leaving"
         : says->fenced          ? "-fenced"
                                 : "");
}

static void on_check(void *ctx)
{
    ck_assert_ptr_eq(ctx, &member);
    note("check ");
}

static void on_end_check(void *ctx)
{
    ck_assert_ptr_eq(ctx, &member);
    note("end-check ");
}

static void on_over(void *ctx, int exit_code, const char *why)
{
    ck_assert_ptr_eq(ctx, &member);
    ck_assert_ptr_nonnull(why);
    note("over%d ", exit_code);
    snprintf(over_why, sizeof over_why, "%s", why);
}

#define asked(expected)                    \
    do {                                   \
        ck_assert_str_eq(calls, expected); \
        calls[0] = '\0';                   \
    } while (0)

static void seat(enum ddp_round_order order, uint64_t generation, uint64_t now_ms)
{
    struct ddp_round_seat given = {
        .order = order, .generation = generation, .exit_code = 7, .text = "because"};
    member_seat(&member, &given, now_ms);
}

static void setup(void)
{
    const struct member_hooks hooks = {
        .ctx = &member, .start = on_start, .stop = on_stop, .publish = on_publish, .over = on_over};
    const struct member_config config = {
        .says = {.name = "a", .nproc = 2}, .lease_ms = LEASE, .join_timeout_ms = JOIN_TIMEOUT};
    calls[0] = '\0';
    member_init(&member, &config, &hooks);
    member_join(&member, 1000);
    asked("idle0 ");
    member_contact(&member, 1000, 1001);
}

static void setup_running(void)
{
    setup();
    seat(DDP_ROUND_RUN, 3, 1010);
    asked("starting3 start3 ");
    member_started(&member);
    asked("running3 ");
}

static void worker_fails(int exit_code)
{
    const struct ddp_round_failure failure = {
        .generation = member.says.generation, .exit_code = exit_code, .text = "died"};
    member_failed(&member, &failure);
}

START_TEST(the_table_is_valid)
{
    ck_assert(ddpi_sm_table_valid(&member_sm));
}
END_TEST

START_TEST(all_ends_well)
{
    setup_running();
    member_finished(&member, 1100);
    asked("done3 ");
    seat(DDP_ROUND_RUN, 3, 1110); /* repeated */
    asked("");
    seat(DDP_ROUND_END, 3, 1120);
    asked("over7 ");
    ck_assert(ddpi_sm_final(&member.sm));
}
END_TEST

START_TEST(a_round_later)
{
    setup_running();
    seat(DDP_ROUND_STOP, 3, 1100);
    asked("stop-orderly ");
    member_cleared(&member, 1110);
    asked("idle3 "); /* not again for the seat, which says the same */
    seat(DDP_ROUND_RUN, 3, 1115);
    asked(""); /* an earlier generation */
    seat(DDP_ROUND_RUN, 4, 1120);
    asked("starting4 start4 ");
}
END_TEST

START_TEST(a_seat_that_came_while_ending)
{
    setup_running();
    seat(DDP_ROUND_STOP, 3, 1100);
    asked("stop-orderly ");
    seat(DDP_ROUND_RUN, 5, 1105); /* a server that has lost its state */
    asked("");
    member_cleared(&member, 1110);
    asked("idle3 starting5 start5 ");
}
END_TEST

START_TEST(a_stop_of_what_never_came)
{
    setup();
    seat(DDP_ROUND_STOP, 4, 1010);
    asked("idle4 ");
    seat(DDP_ROUND_STOP, 4, 1011);
    asked("");
    seat(DDP_ROUND_RUN, 4, 1012);
    asked(""); /* published as ended: must not start again */
}
END_TEST

START_TEST(what_runs_ends_when_the_seat_is_another)
{
    static const enum ddp_round_order orders[] = {DDP_ROUND_WAIT, DDP_ROUND_RUN, DDP_ROUND_END};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        setup_running();
        seat(DDP_ROUND_STOP, 2, 1050); /* an older generation does not */
        asked("");
        seat(orders[i], 4, 1100);
        asked("stop-failed ");
        member_cleared(&member, 1110);
        if (orders[i] == DDP_ROUND_END)
            asked("idle3 over7 ");
        else
            asked(orders[i] == DDP_ROUND_RUN ? "idle3 starting4 start4 " : "idle3 ");
    }
}
END_TEST

START_TEST(a_failure_is_told_and_kept)
{
    setup_running();
    worker_fails(-1);
    asked("running3! stop-failed ");
    worker_fails(9);
    asked("running3! ");
    seat(DDP_ROUND_STOP, 3, 1100);
    asked("");
    member_cleared(&member, 1110);
    asked("idle3! ");
    ck_assert_int_eq(member.says.failure.exit_code, 9);
}
END_TEST

START_TEST(a_finished_node_runs_again)
{
    setup_running();
    member_finished(&member, 1100);
    asked("done3 ");
    seat(DDP_ROUND_STOP, 3, 1110);
    asked("idle3 ");
    seat(DDP_ROUND_RUN, 4, 1120);
    asked("starting4 start4 ");
    member_finished(&member, 1130);
    asked("done4 ");
    seat(DDP_ROUND_RUN, 5, 1140); /* the order to stop was missed */
    asked("starting5 start5 ");
}
END_TEST

START_TEST(the_fence)
{
    setup_running();
    uint64_t deadline = member_deadline(&member);
    ck_assert_uint_lt(deadline, 1000 + LEASE); /* counted from the request, not the answer */
    ck_assert_uint_eq(deadline, 1000 + LEASE - member_margin_ms(LEASE));
    member_tick(&member, deadline - 1);
    asked("");
    member_contact(&member, 1200, 1205);
    member_contact(&member, 1100, 1206); /* an older answer does no harm */
    member_tick(&member, deadline);
    asked("");
    member_tick(&member, 1200 + LEASE);
    asked("stop-kill ");
    member_cleared(&member, 2010);
    asked("idle3-fenced ");
    member_contact(&member, 2015, 2016); /* the server had not dropped this node yet */
    seat(DDP_ROUND_RUN, 3, 2016);
    asked("");
    seat(DDP_ROUND_STOP, 3, 2020);
    asked("");
    seat(DDP_ROUND_RUN, 4, 2030);
    asked("starting4 start4 ");
}
END_TEST

START_TEST(a_node_that_was_stopped_fences_at_once)
{
    setup_running();
    member_contact(&member, 1001, 900000); /* the answer arrived before the node was stopped */
    asked("stop-kill ");
}
END_TEST

/* The grace period of the workers never exceeds the lease. */
START_TEST(fences_while_workers_end)
{
    setup_running();
    seat(DDP_ROUND_STOP, 3, 1100);
    asked("stop-orderly ");
    uint64_t deadline_ms = member_deadline(&member);
    ck_assert_uint_lt(deadline_ms, member.contact_ms + member.lease_ms);
    member_tick(&member, deadline_ms);
    asked("stop-kill ");
    ck_assert_uint_eq(member_deadline(&member), UINT64_MAX);
    member_tick(&member, deadline_ms + 1);
    asked("");
    member_cleared(&member, deadline_ms + 2);
    asked("idle3 "); /* they were ending anyway */
}
END_TEST

/* It was stopped, and finds a seat that may belong to another node by now. */
START_TEST(a_seat_that_is_read_late_waits_for_an_answer)
{
    setup_running();
    seat(DDP_ROUND_STOP, 3, 1100);
    member_cleared(&member, 1110);
    asked("stop-orderly idle3 ");
    seat(DDP_ROUND_RUN, 4, 900000);
    asked("");
    member_contact(&member, 900001, 900002);
    asked("starting4 start4 ");
}
END_TEST

START_TEST(given_up_by_the_server)
{
    setup_running();
    worker_fails(4);
    asked("running3! stop-failed ");
    member_dropped(&member, "lost", 1100);
    asked("stop-kill ");
    member_cleared(&member, 1110);
    asked("idle3 "); /* a new member, without the failure and the seat of the old one */
    member_dropped(&member, "lost", 1120);
    asked("idle3 ");
    setup_running();
    member_dropped(&member, "lost", 1100);
    asked("stop-kill ");
    setup_running();
    member_finished(&member, 1100);
    asked("done3 ");
    member_dropped(&member, "lost", 1110);
    asked("idle3 ");
}
END_TEST

/* A refused node reports the refusal at the end, not an unreachable store. */
START_TEST(refused_until_the_time_is_up)
{
    setup();
    member_dropped(&member, "the store is full: it holds 9 of at most 9 keys", 1200);
    member_tick(&member, member_deadline(&member));
    asked("idle0 over75 ");
    ck_assert_ptr_nonnull(strstr(over_why, "has refused this node"));
    ck_assert_ptr_nonnull(strstr(over_why, "the store is full: it holds 9 of at most 9 keys"));
    ck_assert_ptr_null(strstr(over_why, "reached"));

    setup();
    member_dropped(&member, "the store is full", 1200);
    member_disconnected(&member, "node1: no route"); /* then the store became unreachable */
    member_tick(&member, member_deadline(&member));
    asked("idle0 over69 ");
    ck_assert_ptr_nonnull(strstr(over_why, "could not be reached"));
    ck_assert_ptr_nonnull(strstr(over_why, "(--join-timeout): node1: no route"));

    setup();
    member_disconnected(&member, "node1: no route");
    member_contact(&member, 1300, 1300); /* then it answered, and fell silent again */
    member_tick(&member, member_deadline(&member));
    asked("over69 ");
    ck_assert_ptr_null(strstr(over_why, "no route"));

    setup();
    member_dropped(&member, "the store is full", 1200);
    seat(DDP_ROUND_WAIT, 0, 1300); /* it was accepted at last */
    member_contact(&member, 300, 1300);
    ck_assert_str_eq(member.dropped_why, "");
}
END_TEST

START_TEST(leaving)
{
    setup();
    member_leave(&member, 130, "signal", MEMBER_STOP_ORDERLY);
    asked("idle0-leaving over130 ");
    member_leave(&member, 130, "signal", MEMBER_STOP_KILL);
    asked("");
    setup_running();
    member_leave(&member, 130, "signal", MEMBER_STOP_ORDERLY);
    asked("running3-leaving stop-orderly ");
    seat(DDP_ROUND_STOP, 3, 1100);
    member_leave(&member, 131, "signal", MEMBER_STOP_KILL);
    asked("stop-kill ");
    member_cleared(&member, 1200);
    asked("over131 ");
    setup_running();
    member_finished(&member, 1100);
    asked("done3 ");
    member_leave(&member, 130, "signal", MEMBER_STOP_ORDERLY);
    asked("done3-leaving over130 ");
}
END_TEST

START_TEST(giving_up)
{
    setup();
    ck_assert_uint_eq(member_deadline(&member), 1000 + JOIN_TIMEOUT);
    member_contact(&member, 5900, 5901);
    member_tick(&member, 1000 + JOIN_TIMEOUT);
    asked("over75 "); /* the store answers; other nodes are missing */
    setup();
    member_tick(&member, 1000 + JOIN_TIMEOUT);
    asked("over69 ");
    setup_running();
    member_finished(&member, 1100);
    asked("done3 ");
    member_tick(&member, 1000 + JOIN_TIMEOUT);
    asked("over69 ");
}
END_TEST

/* So does a member whose job pauses before a restart. */
START_TEST(a_spare_waits_without_limit)
{
    setup();
    const struct ddp_round_seat unlimited[] = {{.order = DDP_ROUND_WAIT, .spare = true},
                                               {.order = DDP_ROUND_WAIT, .pausing = true}};
    member_seat(&member, &unlimited[_i], 1010);
    ck_assert_uint_eq(member_deadline(&member), UINT64_MAX);
    seat(DDP_ROUND_WAIT, 0, 1020);
    ck_assert_uint_eq(member_deadline(&member), 1020 + JOIN_TIMEOUT);
}
END_TEST

START_TEST(without_a_store_nothing_is_fenced)
{
    setup_running();
    member.lease_ms = 0;
    ck_assert_uint_eq(member_deadline(&member), UINT64_MAX);
    member_tick(&member, UINT64_MAX - 1);
    asked("");
}
END_TEST

/* ---- node checks ---- */

static void setup_checking(void)
{
    const struct member_hooks hooks = {.ctx = &member,
                                       .start = on_start,
                                       .stop = on_stop,
                                       .check = on_check,
                                       .end_check = on_end_check,
                                       .publish = on_publish,
                                       .over = on_over};
    const struct member_config config = {
        .says = {.name = "a", .nproc = 2}, .lease_ms = LEASE, .join_timeout_ms = JOIN_TIMEOUT};
    calls[0] = '\0';
    member_init(&member, &config, &hooks);
    member_join(&member, 1000);
    asked("check "); /* it has not joined yet */
    ck_assert_uint_eq(member_deadline(&member), UINT64_MAX);
}

static void setup_running_after_check(void)
{
    setup_checking();
    member_checked(&member, "", 1005);
    asked("idle0 ");
    member_contact(&member, 1005, 1006);
    seat(DDP_ROUND_RUN, 3, 1010);
    asked("starting3 start3 ");
    member_started(&member);
    asked("running3 ");
}

START_TEST(a_node_is_checked_before_each_generation)
{
    setup_running_after_check();
    seat(DDP_ROUND_STOP, 3, 1100);
    asked("stop-orderly ");
    member_cleared(&member, 1110);
    asked("idle3-checking check ");
    seat(DDP_ROUND_WAIT, 3, 1120);
    asked("");
    if (_i == 0) {
        member_checked(&member, "", 1130);
        asked("idle3 ");
        seat(DDP_ROUND_RUN, 4, 1140);
        asked("starting4 start4 ");
    } else { /* the seat has come during the check */
        seat(DDP_ROUND_RUN, 4, 1125);
        asked("");
        member_checked(&member, "", 1130);
        asked("idle3 starting4 start4 ");
    }
    ck_assert_uint_eq(member.says.checks, 2);
}
END_TEST

START_TEST(workers_that_ended_well_are_followed_by_a_check)
{
    setup_running_after_check();
    member_finished(&member, 1100);
    asked("done3 ");
    seat(DDP_ROUND_STOP, 3, 1110);
    asked("idle3-checking check ");
    seat(DDP_ROUND_STOP, 4, 1115); /* it was given a seat all the same */
    asked("idle4-checking ");
    member_checked(&member, "", 1130);
    asked("idle4 ");
}
END_TEST

START_TEST(a_sick_node_waits_until_it_is_admitted)
{
    setup_checking();
    member_checked(&member, "node check failed", 1005);
    asked("idle0-sick ");
    member_contact(&member, 1005, 1006);
    seat(DDP_ROUND_RUN, 3, 1010); /* the server did not know */
    asked("");
    seat(DDP_ROUND_STOP, 3, 1020);
    asked("idle3-sick ");
    struct ddp_round_seat admitted = {.order = DDP_ROUND_WAIT, .check = 2};
    member_seat(&member, &admitted, 1030);
    asked("idle3-checking check ");
    member_seat(&member, &admitted, 1040);
    asked("");
    member_checked(&member, _i == 0 ? "" : "failed again", 1050);
    asked(_i == 0 ? "idle3 " : "idle3-sick ");
    member_seat(&member, &admitted, 1060); /* it has done what it was asked for */
    asked("");
    seat(DDP_ROUND_RUN, 4, 1070);
    asked(_i == 0 ? "starting4 start4 " : "");
}
END_TEST

START_TEST(who_is_left_out_gives_up_after_the_others)
{
    setup_checking();
    member_checked(&member, "node check failed", 1005);
    asked("idle0-sick ");
    member_contact(&member, 1005, 1006);
    ck_assert_uint_eq(member_deadline(&member), 1005 + JOIN_TIMEOUT);
    member_seat(&member,
                &(struct ddp_round_seat){.left_out = true, .text = "left out: node check failed"},
                1010);
    ck_assert_uint_eq(member_deadline(&member), 1005 + JOIN_TIMEOUT + JOIN_TIMEOUT / 8);
    member_contact(&member, 7000, 7000);
    asked("over75 ");
    ck_assert_msg(strstr(over_why, "left out: node check failed") != NULL, "'%s'", over_why);
}
END_TEST

/* Nothing is published by a node that has not joined. */
START_TEST(a_check_is_ended_when_nobody_wants_to_know)
{
    if (_i == 0) {
        setup_checking();
        member_leave(&member, 143, "ended", MEMBER_STOP_ORDERLY);
        asked("end-check ");
        member_leave(&member, 143, "ended", MEMBER_STOP_KILL);
        asked("end-check ");
        member_checked(&member, "it was killed", 1010);
        asked("over143 ");
        ck_assert_str_eq(over_why, "ended");
        return;
    }
    setup_running_after_check();
    member_failed(&member, &(struct ddp_round_failure){.generation = 3, .text = "died"});
    asked("running3! stop-failed ");
    member_cleared(&member, 1100);
    asked("idle3!-checking check ");
    seat(DDP_ROUND_END, 3, 1110);
    asked("end-check ");
    member_checked(&member, "", 1120);
    asked("over7 ");
    ck_assert_str_eq(over_why, "because");
}
END_TEST

START_TEST(who_is_lost_during_a_check_joins_after_it)
{
    setup_running_after_check();
    member_dropped(&member, "gone", 1100);
    asked("stop-kill ");
    member_cleared(&member, 1110);
    asked("idle3-checking check ");
    member_dropped(&member, "gone again", 1120);
    asked("");
    member_checked(&member, "", 1130);
    asked("idle3 ");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("member");
    TCase *tcase = tcase_create("member");
    ADD_TESTS(tcase, the_table_is_valid, all_ends_well, a_round_later,
              a_seat_that_came_while_ending, a_stop_of_what_never_came,
              what_runs_ends_when_the_seat_is_another, a_failure_is_told_and_kept,
              a_finished_node_runs_again, the_fence, a_node_that_was_stopped_fences_at_once,
              fences_while_workers_end, a_seat_that_is_read_late_waits_for_an_answer,
              given_up_by_the_server, refused_until_the_time_is_up, leaving, giving_up,
              without_a_store_nothing_is_fenced);
    tcase_add_loop_test(tcase, a_spare_waits_without_limit, 0, 2);
    tcase_add_loop_test(tcase, a_node_is_checked_before_each_generation, 0, 2);
    tcase_add_test(tcase, workers_that_ended_well_are_followed_by_a_check);
    tcase_add_loop_test(tcase, a_sick_node_waits_until_it_is_admitted, 0, 2);
    tcase_add_loop_test(tcase, a_check_is_ended_when_nobody_wants_to_know, 0, 2);
    tcase_add_test(tcase, who_is_left_out_gives_up_after_the_others);
    tcase_add_test(tcase, who_is_lost_during_a_check_joins_after_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
