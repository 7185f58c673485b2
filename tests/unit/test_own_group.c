/*
 * test_own_group.c - finding our own control group in the kernel's lists of mounts and groups.
 */
#include "check_main.h"
#include "own_group.h"

#include <string.h>

#define V1     "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
#define HYBRID "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
#define UNIFIED                                              \
    "25 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw\n" \
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw\n"
#define BOUND "30 23 0:26 /pods/one /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

static const struct {
    const char *mountinfo, *groups;
    const char *path; /* NULL: none */
} cases[] = {
    {UNIFIED, "0::/user.slice/job.scope\n", "/sys/fs/cgroup/user.slice/job.scope"},
    {UNIFIED, "0::/\n", "/sys/fs/cgroup"},
    {UNIFIED, "0::/no/newline", "/sys/fs/cgroup/no/newline"},
    {V1 HYBRID, "4:memory:/a\n1:cpu:/b\n0::/c\n", "/sys/fs/cgroup/unified/c"},
    {BOUND, "0::/pods/one/x\n", "/sys/fs/cgroup/x"},
    {BOUND, "0::/pods/one\n", "/sys/fs/cgroup"},
    {BOUND, "0::/pods/onetwo\n", NULL}, /* is not below /pods/one */
    {BOUND, "0::/elsewhere\n", NULL},
    {BOUND HYBRID, "0::/elsewhere\n", "/sys/fs/cgroup/unified/elsewhere"},
    {UNIFIED, "0::/../outside\n", NULL},
    {UNIFIED, "4:memory:/a\n", NULL},
    {UNIFIED, "0::relative\n", NULL},
    {UNIFIED, "", NULL},
    {V1, "0::/c\n", NULL},
    {"", "0::/c\n", NULL},
    {"41 31 0:38 / - cgroup2 cgroup2 rw\n", "0::/c\n", NULL},
    {"41 31 0:38 / relative rw - cgroup2 cgroup2 rw\n", "0::/c\n", NULL},
    {"41 31 0:38 / /a\\040b rw - cgroup2 cgroup2 rw\n", "0::/c\n", NULL},
    {"\n\n - cgroup2 \n", "\n\n0::/c\n", NULL},
};

START_TEST(our_own_group_is_found)
{
    struct ddpi_own_group group;
    bool found = ddpi_own_group_find(cases[_i].mountinfo, cases[_i].groups, NULL, &group);
    ck_assert_int_eq(found, cases[_i].path != NULL);
    if (found)
        ck_assert_str_eq(group.path, cases[_i].path);
}
END_TEST

/* Of version 1. */
static const struct {
    const char *mountinfo, *groups, *path;
} controllers[] = {
    {V1, "4:cpu:/a/b\n", "/sys/fs/cgroup/cpu/a/b"},
    {V1, "9:cpuset:/x\n4:cpuacct,cpu:/a\n0::/\n", "/sys/fs/cgroup/cpu/a"},
    {V1, "4:cpu:/", "/sys/fs/cgroup/cpu"},
    {"32 31 0:29 / /c rw - cgroup cgroup rw,cpuacct,cpu\n", "1:cpu:/a\n", "/c/a"},
    {"32 31 0:29 / /c rw - cgroup cgroup rw,cpuset\n" V1, "1:cpu:/\n", "/sys/fs/cgroup/cpu"},
    {"32 31 0:29 / /c rw - cgroup cgroup rw,cpuset\n", "1:cpu:/\n", NULL},
    {HYBRID, "1:cpu:/\n", NULL},
    {V1, "1:cpuset:/\n", NULL},
    {V1, "1:cpu\n", NULL},
    {V1, "1:cpu:\n", NULL},
    {V1, "cpu\n:\n::\n1::/\n", NULL},
    {V1, "1:cpu:/../a\n", NULL},
    {" - cgroup cpu\n - cgroup ", "1:cpu:/a\n", NULL},
};

START_TEST(a_controller_has_a_group)
{
    struct ddpi_own_group group;
    bool found =
        ddpi_own_group_find(controllers[_i].mountinfo, controllers[_i].groups, "cpu", &group);
    ck_assert_int_eq(found, controllers[_i].path != NULL);
    if (found)
        ck_assert_str_eq(group.path, controllers[_i].path);
}
END_TEST

START_TEST(what_is_too_long_is_none)
{
    static char long_text[4096];
    struct ddpi_own_group group;
    memset(long_text, 'x', sizeof long_text - 1);
    memcpy(long_text, "0::/", 4);
    ck_assert(!ddpi_own_group_find(UNIFIED, long_text, NULL, &group));
    ck_assert(!ddpi_own_group_find(long_text, "0::/c\n", NULL, &group));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("own group");
    TCase *tcase = tcase_create("finding");
    tcase_add_loop_test(tcase, our_own_group_is_found, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(tcase, a_controller_has_a_group, 0,
                        sizeof controllers / sizeof *controllers);
    tcase_add_test(tcase, what_is_too_long_is_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
