/*
 * test_library.c - a library that is there fills the table; one that is not, or that lacks a
 * function, is a sentence.
 */
#include "check_main.h"
#include "library.h"

#include <string.h>

#define LIBRARY "libm.so.6"

struct table {
    double (*floor)(double);
    void (*fresh)(void);
};

static const struct ddpi_symbol all[] = {{"floor", offsetof(struct table, floor), false},
                                         {"no_function", offsetof(struct table, fresh), true}};
static const struct ddpi_symbol lacking[] = {{"floor", offsetof(struct table, floor), false},
                                             {"no_function", offsetof(struct table, fresh), false}};

static void nothing(void)
{
}

START_TEST(functions_are_found)
{
    static const struct ddpi_library library = {LIBRARY, "a test", "", "a newer libm:", "libc6"};
    struct table table = {.fresh = nothing};
    struct ddp_error err;
    ck_assert_int_eq(ddpi_library_load(&library, all, 2, &table, &err), DDP_OK);
    ck_assert(table.floor(1.5) == 1.0);
    ck_assert(table.fresh == NULL);
}
END_TEST

START_TEST(a_function_that_is_missing_is_named)
{
    static const struct ddpi_library library = {LIBRARY, "a test", "", "a newer libm:", "libc6"};
    struct table table;
    struct ddp_error err;
    ck_assert_int_eq(ddpi_library_load(&library, lacking, 2, &table, &err), DDP_E_UNSUPPORTED);
    ck_assert_str_eq(err.msg,
                     "a test needs a newer libm: the installed " LIBRARY " has no no_function");
    ck_assert_str_eq(ddpi_library_find(ddpi_library_open(LIBRARY), lacking, 2, &table),
                     "no_function");
}
END_TEST

START_TEST(a_library_that_is_missing_is_a_sentence)
{
    static const struct ddpi_library library = {"libddp-absent.so.9", "a test", " of the fair",
                                                "another one:", "libfair9"};
    struct table table;
    struct ddp_error err;
    ck_assert_int_eq(ddpi_library_load(&library, all, 2, &table, &err), DDP_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "a test needs libddp-absent.so.9 of the fair, which cannot be "
                                  "loaded (libddp-absent.so.9: ") == err.msg,
                  "%s", err.msg);
    ck_assert_ptr_nonnull(strstr(err.msg, "); install it (Debian: libfair9)"));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("library");
    TCase *tcase = tcase_create("library");
    tcase_add_test(tcase, functions_are_found);
    tcase_add_test(tcase, a_function_that_is_missing_is_named);
    tcase_add_test(tcase, a_library_that_is_missing_is_a_sentence);
    suite_add_tcase(suite, tcase);
    return suite;
}
