/*
 * test_console_cursor.c - the console when several workers share it, one in the middle of a line.
 */
#include "check_main.h"
#include "console_cursor.h"

#include <stdio.h>
#include <string.h>

/* Workers are called by a letter, which is their prefix too; "-" leaves. */
struct shown_text {
    char owner;
    const char *text;
};

/* What stands on the console after @texts, with "a:" before what has its prefix. */
static void shows(bool terminal, const struct shown_text *texts, const char *expected)
{
    static const char workers[128];
    struct console_cursor cursor = {0};
    char seen[256];
    size_t used = 0;
    for (const struct shown_text *at = texts; at->owner != '\0'; at++) {
        const void *owner = &workers[(unsigned char)at->owner];
        if (strcmp(at->text, "-") == 0) {
            if (console_cursor_leave(&cursor, owner))
                used += (size_t)snprintf(seen + used, sizeof seen - used, "\n");
            continue;
        }
        struct console_cursor_lead lead =
            console_cursor_show(&cursor, owner, at->text, strlen(at->text), terminal);
        char prefix[] = {at->owner, ':', '\0'};
        used += (size_t)snprintf(seen + used, sizeof seen - used, "%s%s%s",
                                 lead.newline ? "\n" : "", lead.prefix ? prefix : "", at->text);
    }
    seen[used] = '\0';
    ck_assert_str_eq(seen, expected);
}

#define SHOWS(terminal, expected, ...) \
    shows(terminal, (const struct shown_text[]){__VA_ARGS__, {'\0', ""}}, expected)

START_TEST(whole_lines_have_their_prefix)
{
    SHOWS(false, "a:one\nb:two\na:three\n", {'a', "one\n"}, {'b', "two\n"}, {'a', "three\n"});
}
END_TEST

START_TEST(a_line_goes_on_behind_its_prefix)
{
    SHOWS(false, "a:name? x\na:next\n", {'a', "name? "}, {'a', "x"}, {'a', "\n"}, {'a', "next\n"});
}
END_TEST

START_TEST(others_end_it_first_and_it_begins_again)
{
    SHOWS(false, "a:name? \nb:line\na:x\n", {'a', "name? "}, {'b', "line\n"}, {'a', "x\n"});
    SHOWS(false, "a:1\nb:2\na:3\nb:4", {'a', "1"}, {'b', "2"}, {'a', "3"}, {'b', "4"});
}
END_TEST

START_TEST(an_owner_that_leaves_ends_its_line)
{
    SHOWS(false, "a:bye\nb:line\n", {'a', "bye"}, {'a', "-"}, {'b', "line\n"});
    SHOWS(false, "a:bye\nb:line\n", {'a', "bye"}, {'b', "line\n"}, {'a', "-"});
    SHOWS(true, "a:100%\r\nb:line\n", {'a', "100%\r"}, {'a', "-"}, {'b', "line\n"});
}
END_TEST

START_TEST(a_progress_bar_writes_over_itself)
{
    SHOWS(true, "a:1%\ra:2%\ra:3%\n", {'a', "1%\r"}, {'a', "2%\r"}, {'a', "3%\n"});
    SHOWS(true, "a:1%\ra:2%\r", {'a', "1%\r"}, {'a', "2%"}, {'a', "\r"});
    SHOWS(true, "a:1%\r\na:x\n", {'a', "1%\r"}, {'a', "\n"}, {'a', "x\n"});
}
END_TEST

START_TEST(two_bars_share_a_line_and_a_line_goes_below)
{
    SHOWS(true, "a:1%\rb:1%\ra:2%\r\nb:done\na:3%\r", {'a', "1%\r"}, {'b', "1%\r"}, {'a', "2%\r"},
          {'b', "done\n"}, {'a', "3%\r"});
    SHOWS(true, "a:1%\r\nb:name? ", {'a', "1%\r"}, {'b', "name? "});
    SHOWS(true, "a:name? \nb:1%\r", {'a', "name? "}, {'b', "1%\r"});
}
END_TEST

START_TEST(in_a_file_a_return_is_text)
{
    SHOWS(false, "a:1%\r2%\r\nb:x\n", {'a', "1%\r"}, {'a', "2%\r"}, {'b', "x\n"});
}
END_TEST

START_TEST(it_is_open_for_its_owner)
{
    struct console_cursor cursor = {0};
    const char a = 'a', b = 'b';
    ck_assert(!console_cursor_is_open(&cursor, &a));
    console_cursor_show(&cursor, &a, "x", 1, true);
    ck_assert(console_cursor_is_open(&cursor, &a) && !console_cursor_is_open(&cursor, &b));
    console_cursor_show(&cursor, &a, "\r", 1, true);
    ck_assert(!console_cursor_is_open(&cursor, &a));
    console_cursor_show(&cursor, &a, "\n", 1, true);
    ck_assert(!console_cursor_is_open(&cursor, &a));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("console_cursor");
    TCase *tcase = tcase_create("console_cursor");
    ADD_TESTS(tcase, whole_lines_have_their_prefix, a_line_goes_on_behind_its_prefix,
              others_end_it_first_and_it_begins_again, an_owner_that_leaves_ends_its_line,
              a_progress_bar_writes_over_itself, two_bars_share_a_line_and_a_line_goes_below,
              in_a_file_a_return_is_text, it_is_open_for_its_owner);
    suite_add_tcase(suite, tcase);
    return suite;
}
