/*
 * test_signames.c - signals by name, both ways.
 */
#include "check_main.h"
#include "signames.h"

#include <string.h>

START_TEST(names)
{
    char name[SIGNAME_MAX];
    ck_assert_str_eq(signame_of(SIGTERM, name), "SIGTERM");
    ck_assert_str_eq(signame_of(SIGKILL, name), "SIGKILL");
    ck_assert_str_eq(signame_of(SIGUSR1, name), "SIGUSR1");
    ck_assert_str_eq(signame_of(SIGRTMIN, name), "SIGRTMIN+0");
    ck_assert_str_eq(signame_of(SIGRTMIN + 3, name), "SIGRTMIN+3");
    ck_assert_str_eq(signame_of(0, name), "signal 0");
    ck_assert_str_eq(signame_of(32, name), "signal 32"); /* the C library's own */
    ck_assert_str_eq(signame_of(99, name), "signal 99");
    ck_assert_ptr_eq(signame_of(-2147483647 - 1, name), name);
}
END_TEST

START_TEST(meanings)
{
    ck_assert_str_eq(signame_meaning(SIGSEGV), "Segmentation fault");
    ck_assert_str_eq(signame_meaning(99), "unknown signal");
    for (int sig = 1; sig < NSIG; sig++)
        ck_assert_uint_gt(strlen(signame_meaning(sig)), 0);
}
END_TEST

/* @text parses to exactly the signals of @expected, which ends in 0. */
static void parses(const char *text, const int *expected)
{
    sigset_t set;
    struct ddp_error error;
    ck_assert_int_eq(signame_parse_list(text, &set, &error), DDP_OK);
    for (int sig = 1; sig < NSIG; sig++) {
        int wanted = 0;
        for (const int *e = expected; *e != 0; e++)
            wanted |= *e == sig;
        ck_assert_msg(sigismember(&set, sig) == wanted, "signal %d in '%s'", sig, text);
    }
}

START_TEST(lists)
{
    parses("", (int[]){0});
    parses(",,", (int[]){0});
    parses("SIGTERM", (int[]){SIGTERM, 0});
    parses("term,Int,sigHUP,SIGQUIT", (int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0});
    parses("USR1,,SIGUSR1,", (int[]){SIGUSR1, 0});
}
END_TEST

START_TEST(every_name_is_found_again)
{
    for (int sig = 1; sig < NSIG; sig++) {
        char name[SIGNAME_MAX];
        if (sigabbrev_np(sig) == NULL || sig == SIGKILL || sig == SIGSTOP || sig == SIGCHLD)
            continue;
        parses(signame_of(sig, name), (int[]){sig, 0});
    }
}
END_TEST

static void refused(const char *text, const char *in_sentence)
{
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    before = set;
    struct ddp_error error = {0};
    ck_assert_int_eq(signame_parse_list(text, &set, &error), DDP_E_INVALID);
    ck_assert_mem_eq(&set, &before, sizeof set);
    ck_assert_msg(strstr(error.msg, in_sentence) != NULL, "'%s' lacks '%s'", error.msg,
                  in_sentence);
}

START_TEST(what_cannot_be_is_refused)
{
    refused("SIGTERM,SIGFOO", "'SIGFOO'");
    refused("TERMINATE", "'TERMINATE'");
    refused("SIG", "'SIG'");
    refused(" TERM", "' TERM'");
    refused("15", "'15'");
    refused("TERM;INT", "'TERM;INT'");
    refused("INT,KILL", "'KILL'");
    refused("SIGSTOP", "'SIGSTOP'");
    refused("CHLD", "'CHLD'");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("signames");
    TCase *tcase = tcase_create("signames");
    ADD_TESTS(tcase, names, meanings, lists, every_name_is_found_again, what_cannot_be_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
