/*
 * test_cgroup.c - control groups of workers where there are none.
 */
#include "cgroup.h"
#include "check_main.h"

START_TEST(none_is_harmless)
{
    const struct cgroup none = {.procs_fd = -1, .kill_fd = -1};
    cgroup_kill(NULL);
    cgroup_kill(&none);
    cgroup_remove(NULL);
    cgroup_remove(&none);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cgroup");
    TCase *tcase = tcase_create("none");
    tcase_add_test(tcase, none_is_harmless);
    suite_add_tcase(suite, tcase);
    return suite;
}
