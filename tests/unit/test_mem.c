/*
 * test_mem.c - the heap: zeroed, overflow-checked, copies; and each call when refused.
 */
#include "check_main.h"
#include "failmem.h"
#include "mem.h"

#include <stdint.h>
#include <string.h>

START_TEST(calloc_gives_zeroes)
{
    unsigned char *bytes = ddpi_calloc(100, 3);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < 300; i++)
        ck_assert_uint_eq(bytes[i], 0);
    ddpi_free(bytes);
    ddpi_free(NULL);
}
END_TEST

/* Hidden from the compiler, which warns of what this test is about. */
static size_t huge(void)
{
    static volatile size_t size = SIZE_MAX;
    return size;
}

START_TEST(sizes_that_overflow_are_refused)
{
    ck_assert_ptr_null(ddpi_calloc(huge() / 2 + 1, 2));
    ck_assert_ptr_null(ddpi_strndup("x", huge()));
    char *old = ddpi_strdup("kept");
    ck_assert_ptr_nonnull(old);
    ck_assert_ptr_null(ddpi_realloc(old, huge() / 2 + 1, 2));
    ck_assert_str_eq(old, "kept");
    ddpi_free(old);
}
END_TEST

START_TEST(realloc_keeps_what_was_there)
{
    char *text = ddpi_realloc(NULL, 6, 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, "hello", 6);
    char *longer = ddpi_realloc(text, 10000, 1);
    ck_assert_ptr_nonnull(longer);
    ck_assert_str_eq(longer, "hello");
    char *empty = ddpi_realloc(longer, 0, 1);
    ck_assert_ptr_nonnull(empty);
    ddpi_free(empty);
}
END_TEST

START_TEST(copies_end_in_nul)
{
    char *whole = ddpi_strdup("hello");
    char *part = ddpi_strndup("hello", 4);
    char *none = ddpi_strndup(NULL, 0);
    ck_assert_str_eq(whole, "hello");
    ck_assert_str_eq(part, "hell");
    ck_assert_str_eq(none, "");
    ddpi_free(whole);
    ddpi_free(part);
    ddpi_free(none);
}
END_TEST

START_TEST(asprintf_takes_any_length)
{
    char *empty = ddpi_asprintf("%s", "");
    char *text = ddpi_asprintf("%d-%s", 7, "x");
    char *wide = ddpi_asprintf("%5000d", 1);
    ck_assert_str_eq(empty, "");
    ck_assert_str_eq(text, "7-x");
    ck_assert_uint_eq(strlen(wide), 5000);
    ddpi_free(empty);
    ddpi_free(text);
    ddpi_free(wide);
}
END_TEST

START_TEST(every_call_can_be_refused)
{
    char *old = ddpi_strdup("kept");
    failmem_start(0);
    ck_assert_ptr_null(ddpi_calloc(1, 1));
    ck_assert_ptr_null(ddpi_realloc(old, 100, 1));
    ck_assert_ptr_null(ddpi_strdup("x"));
    ck_assert_ptr_null(ddpi_strndup("x", 1));
    ck_assert_ptr_null(ddpi_asprintf("x"));
    ck_assert(failmem_stop());
    ck_assert_str_eq(old, "kept");
    ddpi_free(old);
}
END_TEST

START_TEST(refusing_starts_where_it_is_told)
{
    failmem_start(2);
    char *first = ddpi_strdup("1");
    char *second = ddpi_strdup("2");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert_ptr_null(ddpi_strdup("3"));
    ck_assert(failmem_stop());
    failmem_start(1);
    char *fourth = ddpi_strdup("4");
    ck_assert_ptr_nonnull(fourth);
    ck_assert(!failmem_stop());
    ddpi_free(first);
    ddpi_free(second);
    ddpi_free(fourth);
}
END_TEST

START_TEST(sizes_are_rounded_up)
{
    ck_assert_uint_eq(ddpi_round_up(0, 64), 0);
    ck_assert_uint_eq(ddpi_round_up(1, 64), 64);
    ck_assert_uint_eq(ddpi_round_up(64, 64), 64);
    ck_assert_uint_eq(ddpi_round_up(65, 48), 96);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mem");
    TCase *tcase = tcase_create("mem");
    ADD_TESTS(tcase, calloc_gives_zeroes, sizes_that_overflow_are_refused,
              realloc_keeps_what_was_there, copies_end_in_nul, asprintf_takes_any_length,
              every_call_can_be_refused, refusing_starts_where_it_is_told, sizes_are_rounded_up);
    suite_add_tcase(suite, tcase);
    return suite;
}
