/*
 * test_roster.c - who has come, who does not fit, and the sentences for those who are late.
 */
#include "check_main.h"
#include "roster.h"

#include <stdio.h>
#include <string.h>

static struct ddpi_roster roster;
static struct ddp_error error;

static struct ddpi_card card_of(uint32_t world_size, uint32_t rank, const char *machine)
{
    struct ddpi_card card = {
        .world_size = world_size, .pid = 100 + rank, .sockets = 1, .node = "node"};
    snprintf(card.machine, sizeof card.machine, "%s", machine);
    card.tcp.ss_family = AF_INET;
    return card;
}

static ddp_status enter(uint32_t world_size, uint32_t rank, const char *machine)
{
    uint8_t slot[DDPI_CARD_SLOT];
    const struct ddpi_card card = card_of(world_size, rank, machine);
    ck_assert(ddpi_card_put(&card, slot));
    return ddpi_roster_enter(&roster, rank, slot, &error);
}

static void open_roster(uint32_t world_size)
{
    const struct ddpi_card own = card_of(world_size, 0, "a");
    ck_assert_int_eq(ddpi_roster_init(&roster, &own, &error), DDP_OK);
}

static void expect_said(const char *text)
{
    ck_assert_msg(strstr(error.msg, text) != NULL, "%s", error.msg);
}

START_TEST(ranks_come_in_any_order)
{
    open_roster(4);
    for (uint32_t rank = 3; rank > 0; rank--) {
        ck_assert_uint_eq(roster.came, 4 - rank);
        ck_assert_int_eq(enter(4, rank, rank == 2 ? "a" : "b"), DDP_OK);
    }
    ck_assert_uint_eq(roster.came, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        ck_assert_uint_eq(ddpi_roster_local(&roster, rank), 2);
    ddpi_roster_stand(&roster, 3);
    ddpi_roster_stand(&roster, 3);
    ck_assert_uint_eq(roster.standing, 1);
    ddpi_roster_finish(&roster);
}
END_TEST

START_TEST(who_does_not_fit_is_refused)
{
    const uint8_t garbage[DDPI_CARD_SLOT] = {1, 2, 3};
    open_roster(3);
    ck_assert_int_eq(enter(4, 1, "a"), DDP_E_MISMATCH);
    expect_said("rank 1 joins a world of 4 ranks, rank 0 one of 3 (pid 101 on node, pid 100 on");
    ck_assert_int_eq(enter(3, 3, "a"), DDP_E_MISMATCH); /* it cannot say so, but may */
    ck_assert_int_eq(ddpi_roster_enter(&roster, 2, garbage, &error), DDP_E_PROTOCOL);
    expect_said("rank 2 has sent an invalid card");
    ck_assert_int_eq(enter(3, 1, "a"), DDP_OK);
    ck_assert_int_eq(enter(3, 1, "a"), DDP_E_MISMATCH);
    expect_said("two processes join as rank 1; one is pid 101 on node");
    ck_assert_int_eq(ddpi_roster_twice(&roster, 2, &error), DDP_E_MISMATCH);
    expect_said("two processes join as rank 2");
    ck_assert_int_eq(ddpi_roster_twice(&roster, UINT32_MAX, &error), DDP_E_MISMATCH);
    expect_said("joins a larger world than that of rank 0, which has 3 ranks");
    ck_assert_uint_eq(roster.came, 2);
    ddpi_roster_finish(&roster);
}
END_TEST

START_TEST(who_is_late_is_named)
{
    open_roster(20);
    ck_assert_int_eq(enter(20, 5, "a"), DDP_OK);
    ck_assert_int_eq(ddpi_roster_overdue(&roster, 30000, &error), DDP_E_TIMEOUT);
    expect_said("after 30.0 s 2 of 20 ranks have joined; missing: rank 1, 2, 3, 4, 6, 7, 8, 9 and "
                "10 more");
    for (uint32_t rank = 1; rank < 20; rank++)
        if (rank != 5 && rank != 7)
            ck_assert_int_eq(enter(20, rank, "a"), DDP_OK);
    ck_assert_int_eq(ddpi_roster_overdue(&roster, 500, &error), DDP_E_TIMEOUT);
    expect_said("after 0.5 s 19 of 20 ranks have joined; missing: rank 7");
    ck_assert_int_eq(enter(20, 7, "a"), DDP_OK);
    for (uint32_t rank = 0; rank < 20; rank++)
        if (rank < 3 || rank > 5)
            ddpi_roster_stand(&roster, rank);
    roster.places[3].answered = roster.places[5].answered = true;
    ck_assert_int_eq(ddpi_roster_overdue(&roster, 500, &error), DDP_E_TIMEOUT);
    expect_said("17 of 20 ranks are connected to their neighbours; stopped, or too busy to answer: "
                "rank 4");
    roster.places[4].answered = true;
    ck_assert_int_eq(ddpi_roster_overdue(&roster, 500, &error), DDP_E_TIMEOUT);
    expect_said("these answer but are not connected yet: rank 3, 4 and 5");
    ddpi_roster_finish(&roster);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("roster");
    TCase *tcase = tcase_create("roster");
    ADD_TESTS(tcase, ranks_come_in_any_order, who_does_not_fit_is_refused, who_is_late_is_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
