/*
 * test_proc_stat.c - the fields of /proc/PID/stat, whatever the name of the process is.
 */
#include "check_main.h"
#include "proc_stat.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* As Linux 6.8 writes it. */
#define FIELDS_5_TO_52                                                                             \
    "28 28 15 -1 4194308 100 0 0 0 0 0 0 0 20 0 7 0 1702066 3133440 414 18446744073709551615 1 1 " \
    "1 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0 1 1 1 1 1 1 1 256\n"

static void parse(const char *name, struct ddpi_proc_stat *ret)
{
    char line[512];
    snprintf(line, sizeof line, "31 (%s) Z 28 " FIELDS_5_TO_52, name);
    ck_assert(ddpi_proc_stat_parse(line, ret));
}

START_TEST(each_field_is_found)
{
    struct ddpi_proc_stat stat;
    parse("python3", &stat);
    ck_assert_str_eq(stat.name, "python3");
    ck_assert_int_eq(stat.state, 'Z');
    ck_assert_int_eq(stat.parent, 28);
    ck_assert_int_eq(stat.flags, 4194308);
    ck_assert_int_eq(stat.threads, 7);
    ck_assert_int_eq(stat.processor, 5);
    ck_assert_int_eq(stat.exit_code, 256);
}
END_TEST

START_TEST(a_name_may_look_like_fields)
{
    static const char *const names[] = {"",  ")",      "a) R 1 2",
                                        "(", "a b\nc", "kworker/u16:3-events_x"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct ddpi_proc_stat stat;
        parse(names[i], &stat);
        ck_assert_int_eq(strncmp(stat.name, names[i], sizeof stat.name - 1), 0);
        ck_assert_int_eq(stat.parent, 28);
        ck_assert_int_eq(stat.exit_code, 256);
    }
}
END_TEST

START_TEST(a_line_that_is_cut_is_refused)
{
    char whole[512];
    int len = snprintf(whole, sizeof whole, "31 (sh) Z 28 " FIELDS_5_TO_52);
    for (int cut = 0; cut < len - (int)strlen("256\n"); cut++) {
        char line[512];
        struct ddpi_proc_stat stat;
        snprintf(line, sizeof line, "%.*s", cut, whole);
        ck_assert_msg(!ddpi_proc_stat_parse(line, &stat), "%d bytes", cut);
    }
}
END_TEST

START_TEST(a_zombie_shows_its_parent_and_its_exit_code)
{
    siginfo_t info;
    struct ddpi_proc_stat stat;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "odd) Z 1 (name");
        _exit(3);
    }
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    ck_assert(ddpi_proc_stat_read(pid, &stat));
    ck_assert_str_eq(stat.name, "odd) Z 1 (name");
    ck_assert_int_eq(stat.state, 'Z');
    ck_assert_int_eq(stat.parent, getpid());
    ck_assert_int_eq(stat.threads, 1);
    ck_assert_int_eq(WEXITSTATUS(stat.exit_code), 3);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(!ddpi_proc_stat_read(pid, &stat));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("proc_stat");
    TCase *tcase = tcase_create("proc_stat");
    ADD_TESTS(tcase, each_field_is_found, a_name_may_look_like_fields,
              a_line_that_is_cut_is_refused, a_zombie_shows_its_parent_and_its_exit_code);
    suite_add_tcase(suite, tcase);
    return suite;
}
