/*
 * test_failpoint.c - how DDPRUN_FAILPOINTS is understood. What happens at the points themselves is
 * tested in tests/fault.
 */
#include "check_main.h"
#include "failpoint.h"

#include <errno.h>

START_TEST(actions_are_found_by_name_and_count)
{
    static const char spec[] = "a.b=error:12;a.bc=kill@2;d=error:11@3;e=error:5@1;e=error:6@2";
    ck_assert_int_eq(ddpi_failpoint_action(spec, "a.b", 1), ENOMEM);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "a.b", 9), ENOMEM);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "a.bc", 1), 0);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "a.bc", 2), -1);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "d", 3), EAGAIN);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "d", 4), 0);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "e", 2), ENXIO);
    ck_assert_int_eq(ddpi_failpoint_action(spec, "a", 1), 0);
}
END_TEST

START_TEST(malformed_entries_do_nothing)
{
    static const char *const specs[] = {
        "",          "p",        "p=",       "p=error", "p=error:", "p=error:x",
        "p=error:0", "p=kill@x", "p=kill@0", "p=kil",   ";;p",      "p=error:99999999999"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        ck_assert_msg(ddpi_failpoint_action(specs[i], "p", 1) == 0, "'%s'", specs[i]);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("failpoint");
    TCase *tcase = tcase_create("spec");
    tcase_add_test(tcase, actions_are_found_by_name_and_count);
    tcase_add_test(tcase, malformed_entries_do_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
