/*
 * test_safe_dir.c - which paths to a directory are accepted. Cases with other users' directories
 * and links need root: tests/fault/attacks/attack_files.py has them.
 */
#include "check_main.h"
#include "safe_dir.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/test_safe_dir_XXXXXX";

static void make_base(void)
{
    ck_assert_ptr_nonnull(mkdtemp(base));
    ck_assert_int_eq(chdir(base), 0);
}

static void remove_base(void)
{
    tree_remove(base);
}

/* @path leads to the directory that is at @place, below the base. */
static void leads_to(const char *path, const char *place)
{
    char full[128];
    struct stat expected, got;
    struct ddp_error error = {0};
    int fd = -1;
    ck_assert_msg(safe_dir_open(path, true, &fd, &error) == DDP_OK, "%s", error.msg);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    snprintf(full, sizeof full, "%s/%s", base, place);
    ck_assert_int_eq(stat(full, &expected), 0);
    ck_assert_int_eq(fstat(fd, &got), 0);
    ck_assert(expected.st_ino == got.st_ino && expected.st_dev == got.st_dev);
    close(fd);
}

static void refused(const char *path, const char *in_sentence)
{
    struct ddp_error error = {0};
    int fd = -1;
    ck_assert_int_ne(safe_dir_open(path, true, &fd, &error), DDP_OK);
    ck_assert_int_eq(fd, -1);
    ck_assert_msg(strstr(error.msg, in_sentence) != NULL, "'%s' lacks '%s'", error.msg,
                  in_sentence);
}

START_TEST(ways_there_are_many)
{
    char absolute[128];
    snprintf(absolute, sizeof absolute, "/%s/./a//../b/", base);
    leads_to(absolute, "b");
    leads_to("c/d", "c/d");
    leads_to("", ".");
    leads_to("..", "..");
}
END_TEST

START_TEST(what_is_missing_is_made_if_it_may_be)
{
    int fd = -1;
    struct ddp_error error = {0};
    ck_assert_int_ne(safe_dir_open("missing/x", false, &fd, &error), DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "No such file"));
    ck_assert_int_ne(access("missing", F_OK), 0);
    leads_to("missing/x", "missing/x");
    ck_assert_int_eq(safe_dir_open("missing/x", false, &fd, NULL), DDP_OK);
    close(fd);
}
END_TEST

START_TEST(links_are_followed)
{
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/c", base);
    ck_assert_int_eq(mkdir("c", 0700), 0);
    ck_assert_int_eq(symlink("c/../c", "relative"), 0);
    ck_assert_int_eq(symlink(absolute, "absolute"), 0);
    leads_to("relative/d", "c/d");
    leads_to("absolute/e", "c/e");
    leads_to("c/../absolute/d/..", "c");
}
END_TEST

START_TEST(what_is_no_way_is_refused)
{
    static char name[5000];
    memset(name, 'x', sizeof name - 1);
    refused(name, "cannot ");
    name[300] = '\0';
    refused(name, "cannot ");
    close(open("file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    refused("file", "Not a directory");
    refused("file/deeper", "Not a directory");
    ck_assert_int_eq(symlink("loop", "loop"), 0);
    refused("loop/a", "symbolic links");
    ck_assert_int_eq(symlink("nowhere", "dangling"), 0);
    leads_to("dangling", "nowhere"); /* it is made, as all that is missing */
    refused("/proc/1/logs", "'/proc/1/logs'");
}
END_TEST

START_TEST(a_directory_for_everybody_is_refused)
{
    ck_assert_int_eq(mkdir("open", 0700), 0);
    ck_assert_int_eq(chmod("open", 0777), 0);
    refused("open/logs", "'open' is writable by all users");
    ck_assert_int_eq(chmod("open", 01777), 0);
    leads_to("open/logs", "open/logs");
    ck_assert_int_eq(chmod("open", 0775), 0); /* the owner chose the group */
    leads_to("open/logs", "open/logs");
}
END_TEST

START_TEST(what_is_made_is_new_or_no_link)
{
    char first[] = "job_XXXXXX", second[] = "job_XXXXXX";
    int fd = -1;
    ck_assert_int_eq(safe_dir_open(".", false, &fd, NULL), DDP_OK);
    int one = safe_dir_make_unique(fd, first), two = safe_dir_make_unique(fd, second);
    ck_assert(one >= 0 && two >= 0);
    ck_assert_str_ne(first, second);
    ck_assert_int_eq(symlink(first, "link"), 0);
    ck_assert_int_eq(safe_dir_make(fd, "link"), -1);
    ck_assert_int_eq(errno, ENOTDIR);
    int again = safe_dir_make(fd, first);
    ck_assert_int_ge(again, 0);
    char nowhere[] = "x/job_XXXXXX";
    ck_assert_int_eq(safe_dir_make_unique(fd, nowhere), -1);
    close(again);
    close(one);
    close(two);
    close(fd);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("safe_dir");
    TCase *tcase = tcase_create("safe_dir");
    tcase_add_checked_fixture(tcase, make_base, remove_base);
    ADD_TESTS(tcase, ways_there_are_many, what_is_missing_is_made_if_it_may_be, links_are_followed,
              what_is_no_way_is_refused, a_directory_for_everybody_is_refused,
              what_is_made_is_new_or_no_link);
    suite_add_tcase(suite, tcase);
    return suite;
}
