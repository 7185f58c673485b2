/*
 * test_line_filter.c - which lines are copied, and a full disk.
 */
#include "check_main.h"
#include "line_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void matches(const char *list, const char *line, bool expected)
{
    struct line_filter filter;
    ck_assert_int_eq(line_filter_init(&filter, list, NULL), DDP_OK);
    ck_assert_msg(line_filter_matches(&filter, line, strlen(line)) == expected, "'%s' in '%s'",
                  list, line);
    line_filter_finish(&filter);
}

START_TEST(one_of_the_words_is_enough)
{
    matches("apple", "an apple a day\n", true);
    matches("apple", "an appl\n", false);
    matches("apple,orange", "orange\n", true);
    matches("apple,orange", "apple,orange\n", true);
    matches("apple,orange", "pear\n", false);
    matches(" apple", "apple\n", false); /* blanks count, as below torchrun */
}
END_TEST

START_TEST(two_commas_are_one_of_a_word)
{
    matches("a,,b", "a,b\n", true);
    matches("a,,b", "a b\n", false);
    matches("a,,b,c", "c\n", true);
    matches("a,,,b", "b\n", true);
    matches("a,,,b", "a,\n", true);
    matches("a,,,b", "a\n", false);
}
END_TEST

START_TEST(an_empty_word_is_everywhere_and_an_empty_list_nowhere)
{
    struct line_filter filter;
    matches("a,", "x\n", true);
    matches(",a", "x\n", true);
    matches("", "x\n", false);
    ck_assert_int_eq(line_filter_init(&filter, "", NULL), DDP_OK);
    ck_assert(!line_filter_is_on(&filter));
    ck_assert_int_eq(line_filter_init(&filter, NULL, NULL), DDP_OK);
    ck_assert(!line_filter_is_on(&filter));
    line_filter_line(&filter, "", "x\n", 2);
    line_filter_finish(&filter);
}
END_TEST

START_TEST(lines_have_a_prefix_and_an_end)
{
    struct line_filter filter;
    char text[64] = "";
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    ck_assert_int_eq(line_filter_init(&filter, "x", NULL), DDP_OK);
    line_filter_line(&filter, "[0]:", "x\n", 2); /* there is no file yet */
    line_filter_write_to(&filter, fds[1]);
    line_filter_line(&filter, "[0]:", "1 x\n", 4);
    line_filter_line(&filter, "[0]:", "2 y\n", 4);
    line_filter_line(&filter, "[1]:", "3 x", 3);
    ck_assert_int_gt(read(fds[0], text, sizeof text - 1), 0);
    ck_assert_str_eq(text, "[0]:1 x\n[1]:3 x\n");
    line_filter_finish(&filter);
    ck_assert_int_eq(read(fds[0], text, 1), 0); /* and it is closed */
    close(fds[0]);
}
END_TEST

START_TEST(a_full_disk_ends_it)
{
    struct line_filter filter;
    ck_assert_int_eq(line_filter_init(&filter, "x", NULL), DDP_OK);
    line_filter_write_to(&filter, open("/dev/full", O_WRONLY | O_CLOEXEC));
    line_filter_line(&filter, "", "x\n", 2);
    line_filter_line(&filter, "", "x\n", 2);
    ck_assert_int_eq(filter.fd, -1);
    ck_assert_int_eq(filter.sys_errno, ENOSPC);
    line_filter_finish(&filter);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("line_filter");
    TCase *tcase = tcase_create("line_filter");
    ADD_TESTS(tcase, one_of_the_words_is_enough, two_commas_are_one_of_a_word,
              an_empty_word_is_everywhere_and_an_empty_list_nowhere, lines_have_a_prefix_and_an_end,
              a_full_disk_ends_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
