/*
 * test_budget.c - what many have together, and what each has for himself.
 */
#include "budget.h"
#include "check_main.h"

enum { OWN = DDPI_BUDGET_OWN, LIMIT = 1000 };

START_TEST(the_first_bytes_do_not_count)
{
    struct ddpi_budget budget = {.limit = LIMIT};
    size_t a = 0, b = 0, c = 0;
    ck_assert(ddpi_budget_move(&budget, &a, OWN + LIMIT));
    ck_assert_uint_eq(budget.used, LIMIT);
    ck_assert(ddpi_budget_move(&budget, &b, OWN));
    ck_assert_uint_eq(ddpi_budget_room(&budget, b), OWN);
    ck_assert_uint_eq(ddpi_budget_room(&budget, a), OWN + LIMIT);
    ck_assert(!ddpi_budget_move(&budget, &c, OWN + 1));
    ck_assert_uint_eq(budget.held, OWN + LIMIT + OWN + OWN + 1);
    ck_assert(ddpi_budget_move(&budget, &c, 0));
    ck_assert(ddpi_budget_move(&budget, &a, 0) && ddpi_budget_move(&budget, &b, 0));
    ck_assert_uint_eq(budget.used, 0);
    ck_assert_uint_eq(budget.held, 0);
}
END_TEST

START_TEST(at_the_limit_and_beyond)
{
    struct ddpi_budget budget = {.limit = LIMIT};
    size_t a = 0, b = 0;
    ck_assert(ddpi_budget_move(&budget, &a, OWN + LIMIT - 1));
    ck_assert(ddpi_budget_move(&budget, &b, OWN + 1));
    ck_assert_uint_eq(ddpi_budget_room(&budget, b), OWN + 1);
    ck_assert(!ddpi_budget_move(&budget, &b, OWN + 2));
    ck_assert_uint_eq(ddpi_budget_room(&budget, a), OWN + LIMIT - 2);
    ck_assert(ddpi_budget_move(&budget, &a, OWN + LIMIT - 2)); /* less than before is right */
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("budget");
    TCase *tcase = tcase_create("budget");
    tcase_add_test(tcase, the_first_bytes_do_not_count);
    tcase_add_test(tcase, at_the_limit_and_beyond);
    suite_add_tcase(suite, tcase);
    return suite;
}
