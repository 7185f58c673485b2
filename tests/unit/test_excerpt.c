/*
 * test_excerpt.c - finding a recorded traceback in stderr, as Python and PyTorch print it.
 */
#include "check_main.h"
#include "excerpt.h"

#include <stdio.h>
#include <string.h>

#define HEADING  "Traceback (most recent call last):\n"
#define FRAMES   "  File \"x.py\", line 4, in main\n    fail()\nValueError: no\n"
#define RECORDED HEADING FRAMES

/* @text is @before, then what is found, then @behind. */
static void finds(const char *before, const char *found, const char *behind, const char *traceback)
{
    char text[2048];
    struct excerpt excerpt;
    int len = snprintf(text, sizeof text, "%s%s%s", before, found, behind);
    ck_assert(excerpt_find(text, (size_t)len, traceback, &excerpt));
    ck_assert_uint_eq(excerpt.from, strlen(before));
    ck_assert_uint_eq(excerpt.to, strlen(before) + strlen(found));
}

static void finds_nothing(const char *text, const char *traceback)
{
    struct excerpt excerpt;
    ck_assert(!excerpt_find(text, strlen(text), traceback, &excerpt));
}

START_TEST(as_it_is)
{
    finds("", RECORDED, "", RECORDED);
    finds("warning\n", RECORDED, "bye\n", RECORDED);
    finds("", "one line\n", "", "one line");
    finds("a\n", "no end", "", "no end");
}
END_TEST

START_TEST(with_the_frames_outside_the_decorator)
{
    finds("warning\n", HEADING "  File \"x.py\", line 9, in <module>\n    main()\n" FRAMES, "bye\n",
          RECORDED);
}
END_TEST

START_TEST(of_several_the_heading_is_its_own)
{
    finds(HEADING "KeyError: 1\n", HEADING FRAMES, "", RECORDED);
}
END_TEST

START_TEST(behind_pytorchs_rank)
{
    finds("w\n",
          "[rank12]: Traceback (most recent call last):\n"
          "[rank12]:   File \"x.py\", line 4, in main\n"
          "[rank12]:     fail()\n"
          "[rank12]: ValueError: no\n",
          "[rank12]: more\n", RECORDED);
    finds("", "[rank0]: a\n[rank0]:\nb\n", "", "a\n\nb\n");
    finds("[rank]: a\n[rankx: a\n[rank1]\n", "a\n", "", "a");
}
END_TEST

START_TEST(anything_else_is_not_it)
{
    finds_nothing("", RECORDED);
    finds_nothing(HEADING, RECORDED);
    finds_nothing(HEADING "  File \"x.py\", line 4, in main\n    fail()\n", RECORDED);
    finds_nothing(HEADING "  File \"x.py\", line 4, in main\n    fail()\nValueError: yes\n",
                  RECORDED);
    finds_nothing("ValueError: no way\n", "ValueError: no\n");
    finds_nothing(RECORDED, "");
    finds_nothing(RECORDED, HEADING);
}
END_TEST

static void last_is(const char *text, const char *name)
{
    struct excerpt found;
    ck_assert(excerpt_last_exception(text, strlen(text), &found));
    ck_assert_uint_eq(found.to - found.from, strlen(name));
    ck_assert_int_eq(memcmp(text + found.from, name, strlen(name)), 0);
}

START_TEST(the_last_exception)
{
    last_is(RECORDED, "ValueError");
    last_is(RECORDED "\nDuring handling of the above:\n\n" HEADING "  File\nImportError: no\n",
            "ImportError");
    last_is("w\n[rank3]: json.decoder.JSONDecodeError: Expecting value\n[rank3]:\nbye\n",
            "JSONDecodeError");
    last_is("KeyError", "KeyError");
    last_is("a_1.MyException: x", "MyException");
}
END_TEST

START_TEST(what_is_no_exception)
{
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "  KeyError: 1\n",
                                        "a KeyError: 1\n",
                                        "KeyError 1\n",
                                        "Errors: 1\n",
                                        "[rank0]  KeyError: 1\n",
                                        "Error-1: x\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct excerpt found;
        ck_assert_msg(!excerpt_last_exception(texts[i], strlen(texts[i]), &found), "'%s'",
                      texts[i]);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("excerpt");
    TCase *tcase = tcase_create("excerpt");
    ADD_TESTS(tcase, as_it_is, with_the_frames_outside_the_decorator,
              of_several_the_heading_is_its_own, behind_pytorchs_rank, anything_else_is_not_it,
              the_last_exception, what_is_no_exception);
    suite_add_tcase(suite, tcase);
    return suite;
}
