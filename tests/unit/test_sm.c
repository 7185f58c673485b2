/*
 * test_sm.c - the state-machine table: moves it allows and refuses, and what makes a table valid.
 */
#include "check_main.h"
#include "sm.h"

#define DOOR_STATES(X)                                                                \
    X(DOOR, CLOSED, DDPI_SM_TO(DOOR_OPEN) | DDPI_SM_TO(DOOR_WALLED), DDPI_SM_INITIAL) \
    X(DOOR, OPEN, DDPI_SM_TO(DOOR_CLOSED), 0)                                         \
    X(DOOR, WALLED, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(door, DOOR_STATES);
DDPI_SM_DEFINE(door, DOOR_STATES);

START_TEST(moves_follow_the_table)
{
    struct ddpi_sm sm;
    ddpi_sm_init(&sm, &door_sm);
    ck_assert_str_eq(ddpi_sm_name(&sm), "CLOSED");
    ck_assert(ddpi_sm_move(&sm, DOOR_OPEN));
    ck_assert_uint_eq(sm.state, DOOR_OPEN);
    ck_assert(!ddpi_sm_allowed(&sm, DOOR_WALLED));
    ck_assert(!ddpi_sm_allowed(&sm, 31));
    ck_assert(!ddpi_sm_final(&sm));
    ck_assert(ddpi_sm_move(&sm, DOOR_CLOSED) && ddpi_sm_move(&sm, DOOR_WALLED));
    ck_assert(ddpi_sm_final(&sm));
}
END_TEST

START_TEST(tables_are_checked)
{
    ck_assert(ddpi_sm_table_valid(&door_sm));
    const struct ddpi_sm_state two_initial[] = {{"A", 2, DDPI_SM_INITIAL},
                                                {"B", 1, DDPI_SM_INITIAL}};
    const struct ddpi_sm_state unreachable[] = {{"A", 1, DDPI_SM_INITIAL}, {"B", 1, 0}};
    const struct ddpi_sm_state no_such_target[] = {{"A", 4, DDPI_SM_INITIAL},
                                                   {"B", 1, DDPI_SM_FINAL}};
    const struct ddpi_sm_state dead_end[] = {{"A", 2, DDPI_SM_INITIAL}, {"B", 0, 0}};
    const struct ddpi_sm_state *bad[] = {two_initial, unreachable, no_such_target, dead_end};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert(!ddpi_sm_table_valid(&(struct ddpi_sm_table){"bad", bad[i], 2}));
    ck_assert(!ddpi_sm_table_valid(&(struct ddpi_sm_table){"empty", two_initial, 0}));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sm");
    TCase *tcase = tcase_create("table");
    tcase_add_test(tcase, moves_follow_the_table);
    tcase_add_test(tcase, tables_are_checked);
    suite_add_tcase(suite, tcase);
    return suite;
}
