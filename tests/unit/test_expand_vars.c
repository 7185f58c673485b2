/*
 * test_expand_vars.c - variables in the arguments of a worker and in the prefix of its lines.
 */
#include "check_main.h"
#include "expand_vars.h"
#include "failmem.h"
#include "mem.h"

#include <string.h>

static const struct text_var vars[] = {{"local_rank", "3"}, {"rank", "11"}, {"empty", ""}};

static void expands(const char *text, const char *result)
{
    char *expanded = expand_vars(text, vars, sizeof vars / sizeof *vars);
    ck_assert_ptr_nonnull(expanded);
    ck_assert_str_eq(expanded, result);
    ddpi_free(expanded);
}

START_TEST(known_names_are_replaced)
{
    expands("", "");
    expands("plain", "plain");
    expands("${local_rank}", "3");
    expands("$local_rank", "3");
    expands("[$rank/${rank}]:", "[11/11]:");
    expands("a${empty}b$empty", "ab");
    expands("${rank}${local_rank}x", "113x");
    expands("$local_rank-x", "3-x");
}
END_TEST

START_TEST(all_else_stays_as_it_is)
{
    expands("$HOME ${HOME}", "$HOME ${HOME}");
    expands("$local_rankx ${local_rank ${local_rank-}", "$local_rankx ${local_rank ${local_rank-}");
    expands("$", "$");
    expands("${", "${");
    expands("${}", "${}");
    expands("$1 5$", "$1 5$");
    expands("local_rank", "local_rank");
}
END_TEST

START_TEST(two_dollars_are_one)
{
    expands("$$", "$");
    expands("$$local_rank", "$local_rank");
    expands("$$$local_rank", "$3");
    expands("$$$$", "$$");
    expands("$$$", "$$");
    expands("$${rank}", "${rank}");
}
END_TEST

START_TEST(without_memory_there_is_no_text)
{
    char text[1000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (unsigned successes = 0;; successes++) {
        failmem_start(successes);
        char *expanded = expand_vars(text, vars, 1);
        if (!failmem_stop()) {
            ck_assert_str_eq(expanded, text);
            ddpi_free(expanded);
            ck_assert_uint_gt(successes, 2);
            break;
        }
        ck_assert_ptr_null(expanded);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("expand_vars");
    TCase *tcase = tcase_create("expand_vars");
    ADD_TESTS(tcase, known_names_are_replaced, all_else_stays_as_it_is, two_dollars_are_one,
              without_memory_there_is_no_text);
    suite_add_tcase(suite, tcase);
    return suite;
}
