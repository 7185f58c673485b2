/*
 * test_oom_kills.c - the kernel's counter in each file that has one.
 */
#include "check_main.h"
#include "oom_kills.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void counts(const char *text, uint64_t expected)
{
    uint64_t kills = 4711;
    ck_assert_msg(oom_kills_parse(text, &kills), "no counter in '%s'", text);
    ck_assert_uint_eq(kills, expected);
}

static void counts_nothing(const char *text)
{
    uint64_t kills = 4711;
    ck_assert_msg(!oom_kills_parse(text, &kills), "a counter in '%s'", text);
    ck_assert_uint_eq(kills, 4711);
}

START_TEST(each_format_is_read)
{
    counts("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", 2); /* cgroup v2 */
    counts("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7);                /* cgroup v1 */
    counts("nr_free_pages 1\noom_kill 18446744073709551615\n", UINT64_MAX);    /* /proc/vmstat */
    counts("oom_kill 0", 0);
    counts("\n\noom_kill 5\n", 5);
}
END_TEST

START_TEST(what_only_looks_like_it_is_not)
{
    counts_nothing("");
    counts_nothing("\n");
    counts_nothing("oom 3\noom_kill_disable 0\noom_group_kill 4\n");
    counts_nothing("x_oom_kill 3\n");
    counts_nothing("oom_kill");
}
END_TEST

static void write_counter(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

START_TEST(only_new_kills_are_told_and_once)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/test_oom_%d", (int)getpid());
    struct oom_kills watch = {.kills = 3};
    snprintf(watch.path, sizeof watch.path, "%s", path);
    write_counter(path, "oom_kill 3\n");
    ck_assert_uint_eq(oom_kills_new(&watch), 0);
    write_counter(path, "oom_kill 5\n");
    ck_assert_uint_eq(oom_kills_new(&watch), 2);
    ck_assert_uint_eq(oom_kills_new(&watch), 0);
    write_counter(path, "oom_kill 1\n"); /* moved to another cgroup: nothing is known */
    ck_assert_uint_eq(oom_kills_new(&watch), 0);
    write_counter(path, "");
    ck_assert_uint_eq(oom_kills_new(&watch), 0);
    unlink(path);
    ck_assert_uint_eq(oom_kills_new(&watch), 0);
}
END_TEST

START_TEST(a_watch_without_a_counter_says_nothing)
{
    struct oom_kills watch = {.kills = 0};
    ck_assert_uint_eq(oom_kills_new(&watch), 0);
}
END_TEST

START_TEST(this_machine_has_a_counter)
{
    struct oom_kills watch;
    memset(&watch, 0xff, sizeof watch);
    oom_kills_init(&watch);
    ck_assert_ptr_nonnull(memchr(watch.path, '\0', sizeof watch.path));
    if (access("/proc/vmstat", R_OK) == 0)
        ck_assert_str_ne(watch.path, "");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("oom_kills");
    TCase *tcase = tcase_create("oom_kills");
    ADD_TESTS(tcase, each_format_is_read, what_only_looks_like_it_is_not,
              only_new_kills_are_told_and_once, a_watch_without_a_counter_says_nothing,
              this_machine_has_a_counter);
    suite_add_tcase(suite, tcase);
    return suite;
}
