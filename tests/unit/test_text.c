/*
 * test_text.c - which bytes of foreign text a person is shown, and which could drive the terminal.
 */
#include "check_main.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

static void masks(const char *text, const char *expected)
{
    char masked[128];
    snprintf(masked, sizeof masked, "%s", text);
    ddpi_text_mask(masked);
    ck_assert_str_eq(masked, expected);
}

START_TEST(every_byte_alone)
{
    for (int c = 1; c < 256; c++) {
        const char text[] = {(char)c, '\0'};
        bool control, expected = (c < 0x20 && c != '\t') || (c >= 0x7f && c <= 0x9f);
        ck_assert_uint_eq(ddpi_text_char(text, 1, &control), 1);
        ck_assert_msg(control == expected, "byte 0x%02x", (unsigned)c);
        masks(text, expected ? "?" : text);
    }
}
END_TEST

/* U+0080 to U+07FF: the first 32 are C1. */
START_TEST(every_character_of_two_bytes)
{
    for (int c = 0x80; c < 0x800; c++) {
        const char text[] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), '\0'};
        bool control;
        ck_assert_uint_eq(ddpi_text_char(text, 2, &control), 2);
        ck_assert_msg(control == (c < 0xa0), "U+%04x", (unsigned)c);
    }
    masks("a\xc2\x9b"
          "31mb\xc3\xa9",
          "a??31mb\xc3\xa9");
}
END_TEST

START_TEST(longer_characters_stay_whatever_bytes_they_have)
{
    masks("dash \xe2\x80\x94, face \xf0\x9f\x98\x80", "dash \xe2\x80\x94, face \xf0\x9f\x98\x80");
}
END_TEST

START_TEST(what_only_looks_like_a_character_hides_nothing)
{
    masks("\xe2\x9b[", "\xe2?[");            /* cut */
    masks("\xe2\x9b", "\xe2?");              /* by the end */
    masks("\xe0\x82\x9b", "\xe0??");         /* longer than need be */
    masks("\xc0\x9b\xc1\x9b", "\xc0?\xc1?"); /* so too */
    masks("\xf0\x80\x82\x9b", "\xf0???");
    masks("\xf5\x80\x80\x9b", "\xf5???"); /* beyond the last */
    masks("\x9b"
          "2J",
          "?2J");
    masks("\x1b]0;\x07\n\t", "?]0;??\t");
}
END_TEST

static void plain(const char *text, const char *expected)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    copy[ddpi_text_plain(copy, strlen(copy))] = '\0';
    ck_assert_str_eq(copy, expected);
}

START_TEST(colours_are_taken_out)
{
    plain("\x1b[1;35mValueError\x1b[0m: no\x1b[m\n", "ValueError: no\n");
    plain("\x1b[38:5:1mx", "x");
    plain("\x1b[2Jx\x1b[1", "\x1b[2Jx\x1b[1"); /* what does more is left to be spelled out */
    plain("\x1b[", "\x1b[");
    plain("", "");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("text");
    TCase *tcase = tcase_create("text");
    ADD_TESTS(tcase, every_byte_alone, every_character_of_two_bytes,
              longer_characters_stay_whatever_bytes_they_have, colours_are_taken_out,
              what_only_looks_like_a_character_hides_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
