/*
 * test_group_order.c - the members of a group, by colour, key and rank.
 */
#include "check_main.h"
#include "group_order.h"

enum { RANKS_MAX = 3072 };

START_TEST(members_are_in_the_order_of_keys_then_ranks)
{
    static const struct ddpi_choice choices[] = {{1, 5},  {0, 0}, {1, -5}, {1, 5}, {-1, 1},
                                                 {1, -5}, {0, 0}, {1, 0},  {1, 5}};
    static const uint32_t expected[] = {2, 5, 7, 0, 3, 8};
    uint32_t members[9], place = 99;
    ck_assert_uint_eq(ddpi_group_order(choices, 9, 3, members, &place), 6);
    ck_assert_uint_eq(place, 4);
    for (unsigned i = 0; i < 6; i++)
        ck_assert_uint_eq(members[i], expected[i]);
    ck_assert_uint_eq(ddpi_group_order(choices, 9, 6, members, &place), 2);
    ck_assert_uint_eq(place, 1);
}
END_TEST

/* All in one group, with keys in any order. */
START_TEST(many_members_are_sorted)
{
    static struct ddpi_choice choices[RANKS_MAX];
    static uint32_t members[RANKS_MAX];
    uint32_t place = 0, random = 1;
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        random = random * 1664525 + 1013904223;
        choices[rank].key = (int32_t)(random >> 24) - 128;
    }
    ck_assert_uint_eq(ddpi_group_order(choices, RANKS_MAX, 7, members, &place), RANKS_MAX);
    ck_assert_uint_eq(members[place], 7);
    for (uint32_t i = 1; i < RANKS_MAX; i++) {
        int32_t before = choices[members[i - 1]].key, here = choices[members[i]].key;
        ck_assert(before < here || (before == here && members[i - 1] < members[i]));
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("group_order");
    TCase *tcase = tcase_create("members");
    tcase_add_test(tcase, members_are_in_the_order_of_keys_then_ranks);
    tcase_add_test(tcase, many_members_are_sorted);
    suite_add_tcase(suite, tcase);
    return suite;
}
