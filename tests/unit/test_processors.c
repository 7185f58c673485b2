/*
 * test_processors.c - quotas of control groups, from files of a table.
 */
#include "check_main.h"
#include "processors.h"

#include <stdio.h>
#include <string.h>

#define V2     "30 23 0:26 / /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
#define V1     "32 31 0:29 / /v1 rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define BOUND  "30 23 0:26 /pods/one /cg rw - cgroup2 cgroup2 rw\n"
#define MOUNTS "/proc/self/mountinfo"
#define GROUPS "/proc/self/cgroup"

static const struct {
    struct file {
        const char *path, *text;
    } files[7];
    uint32_t quota;
} cases[] = {
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "200000 100000\n"}}, 2},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "max 100000\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "190000 100000\n"}}, 1},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "1000 100000\n"}}, 1},
    {{{MOUNTS, V2}, {GROUPS, "0::/\n"}, {"/cg/cpu.max", "300000 100000"}}, 3},
    /* the least of those above it */
    {{{MOUNTS, V2},
      {GROUPS, "0::/a/b/c\n"},
      {"/cg/a/b/c/cpu.max", "max 100000\n"},
      {"/cg/a/b/cpu.max", "400000 100000\n"},
      {"/cg/a/cpu.max", "250000 100000\n"},
      {"/cg/cpu.max", "900000 100000\n"}},
     2},
    /* nothing above the mount */
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cpu.max", "100000 100000\n"}}, UINT32_MAX},
    {{{MOUNTS, BOUND},
      {GROUPS, "0::/pods/one/x\n"},
      {"/cg/cpu.max", "500000 100000\n"},
      {"/cg/pods/one/cpu.max", "100000 100000\n"}},
     5},
    {{{MOUNTS, V1},
      {GROUPS, "4:cpu,cpuacct:/a\n"},
      {"/v1/a/cpu.cfs_quota_us", "-1\n"},
      {"/v1/a/cpu.cfs_period_us", "100000\n"},
      {"/v1/cpu.cfs_quota_us", "600000\n"},
      {"/v1/cpu.cfs_period_us", "100000\n"}},
     6},
    {{{MOUNTS, V1 V2},
      {GROUPS, "4:cpu,cpuacct:/a\n0::/b\n"},
      {"/v1/a/cpu.cfs_quota_us", "300000\n"},
      {"/v1/a/cpu.cfs_period_us", "100000\n"},
      {"/cg/b/cpu.max", "200000 50000\n"}},
     3},
    {{{MOUNTS, V1}, {GROUPS, "4:cpu:/a\n"}, {"/v1/a/cpu.cfs_quota_us", "300000\n"}}, UINT32_MAX},
    /* what no kernel writes */
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "100000\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "100000 0\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "-5 100000\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "0 100000\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "100000 100000 1\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", " \n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "99999999999999999999 1"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "9223372036854775807 1"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "0::/a\n"}}, UINT32_MAX},
    {{{MOUNTS, V2}, {GROUPS, "garbage"}}, UINT32_MAX},
    {{{MOUNTS, "garbage"}, {GROUPS, "0::/a\n"}, {"/cg/a/cpu.max", "100000 100000\n"}}, UINT32_MAX},
    {{{GROUPS, "0::/a\n"}}, UINT32_MAX},
};

static int now; /* the case */

static bool read_table(const char *path, char *text, size_t size)
{
    const struct file *files = cases[now].files;
    for (size_t i = 0; i < sizeof cases->files / sizeof *files && files[i].path != NULL; i++)
        if (strcmp(files[i].path, path) == 0) {
            snprintf(text, size, "%s", files[i].text);
            return true;
        }
    text[0] = '\0';
    return false;
}

START_TEST(quotas_limit_processors)
{
    now = _i;
    ck_assert_uint_eq(ddpi_processors_quota(read_table), cases[_i].quota);
}
END_TEST

START_TEST(there_is_a_processor)
{
    ck_assert_uint_ge(ddpi_processors(), 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("processors");
    TCase *tcase = tcase_create("processors");
    tcase_add_loop_test(tcase, quotas_limit_processors, 0, sizeof cases / sizeof *cases);
    tcase_add_test(tcase, there_is_a_processor);
    suite_add_tcase(suite, tcase);
    return suite;
}
