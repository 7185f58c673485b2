/*
 * test_status.c - the list of results: unique, complete, in two classes; and what errno becomes.
 */
#include "check_main.h"
#include "status.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

static const ddp_status all[] = {
#define SYMBOL(symbol, value, name, text, retry) symbol,
    DDP_STATUS_MAP(SYMBOL)
#undef SYMBOL
};

enum { COUNT = sizeof all / sizeof *all };

START_TEST(every_status_has_its_own_name_and_text)
{
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_str_ne(ddp_status_name(all[i]), "unknown");
        ck_assert_str_ne(ddp_status_text(all[i]), "unknown status");
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(all[i], all[j]);
            ck_assert_str_ne(ddp_status_name(all[i]), ddp_status_name(all[j]));
            ck_assert_str_ne(ddp_status_text(all[i]), ddp_status_text(all[j]));
        }
    }
}
END_TEST

START_TEST(names_are_fit_for_scripts)
{
    for (size_t i = 0; i < COUNT; i++) {
        const char *name = ddp_status_name(all[i]);
        ck_assert_uint_gt(strlen(name), 0);
        ck_assert_uint_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz-"), strlen(name));
    }
    ck_assert_str_eq(ddp_status_name(DDP_OK), "ok");
    ck_assert_str_eq(ddp_status_name(DDP_E_PEER_DEAD), "peer-dead");
}
END_TEST

START_TEST(only_conditions_of_a_call_are_worth_a_retry)
{
    for (size_t i = 0; i < COUNT; i++)
        if (all[i] <= 0)
            ck_assert_int_eq(ddp_status_retryable(all[i]), 0);
    ck_assert_int_eq(ddp_status_retryable(DDP_E_TIMEOUT), 1);
    ck_assert_int_eq(ddp_status_retryable(DDP_E_UNREACHABLE), 1);
    ck_assert_int_eq(ddp_status_retryable(DDP_E_DENIED), 0);
}
END_TEST

START_TEST(values_that_are_none_are_unknown)
{
    const int none[] = {-100, 100, INT_MIN, INT_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        ck_assert_str_eq(ddp_status_name((ddp_status)none[i]), "unknown");
        ck_assert_str_eq(ddp_status_text((ddp_status)none[i]), "unknown status");
        ck_assert_int_eq(ddp_status_retryable((ddp_status)none[i]), 0);
    }
}
END_TEST

START_TEST(errno_is_translated)
{
    static const struct {
        int sys_errno;
        ddp_status status;
    } rows[] = {
        {0, DDP_OK},
        {ENOMEM, DDP_E_NOMEM},
        {EINVAL, DDP_E_INVALID},
        {ETIMEDOUT, DDP_E_TIMEOUT},
        {EPIPE, DDP_E_CLOSED},
        {ECONNRESET, DDP_E_CLOSED},
        {ECONNABORTED, DDP_E_CLOSED},
        {ENOTCONN, DDP_E_CLOSED},
        {ECONNREFUSED, DDP_E_UNREACHABLE},
        {EHOSTUNREACH, DDP_E_UNREACHABLE},
        {ENETUNREACH, DDP_E_UNREACHABLE},
        {EHOSTDOWN, DDP_E_UNREACHABLE},
        {ENETDOWN, DDP_E_UNREACHABLE},
        {EADDRNOTAVAIL, DDP_E_UNREACHABLE},
        {EMFILE, DDP_E_SYSTEM},
        {ENOENT, DDP_E_SYSTEM},
        {99999, DDP_E_SYSTEM},
        {-1, DDP_E_SYSTEM},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(ddpi_status_from_errno(rows[i].sys_errno), rows[i].status);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("list");
    ADD_TESTS(tcase, every_status_has_its_own_name_and_text, names_are_fit_for_scripts,
              only_conditions_of_a_call_are_worth_a_retry, values_that_are_none_are_unknown,
              errno_is_translated);
    suite_add_tcase(suite, tcase);
    return suite;
}
