/*
 * test_uv_error.c - libuv's error codes: those that are an errno, those that are not, and the
 * sentence.
 */
#include "check_main.h"
#include "uv_error.h"

#include <errno.h>
#include <uv.h>

START_TEST(codes_have_a_status)
{
    static const struct {
        int uv_err;
        ddp_status status;
    } rows[] = {
        {0, DDP_OK},
        {UV_ENOMEM, DDP_E_NOMEM},
        {UV_EAI_MEMORY, DDP_E_NOMEM},
        {UV_EOF, DDP_E_CLOSED},
        {UV_ECONNRESET, DDP_E_CLOSED},
        {UV_EPIPE, DDP_E_CLOSED},
        {UV_ECONNREFUSED, DDP_E_UNREACHABLE},
        {UV_EAI_NONAME, DDP_E_UNREACHABLE},
        {UV_ETIMEDOUT, DDP_E_TIMEOUT},
        {UV_ECANCELED, DDP_E_ABORTED},
        {UV_EACCES, DDP_E_SYSTEM},
        {UV_UNKNOWN, DDP_E_SYSTEM},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(ddpi_uv_status(rows[i].uv_err), rows[i].status);
}
END_TEST

START_TEST(the_sentence)
{
    struct ddp_error err;
    ck_assert_int_eq(ddpi_uv_error(&err, UV_EACCES, "opening"), DDP_E_SYSTEM);
    ck_assert_str_eq(err.msg, "opening: permission denied");
    ck_assert_int_eq(err.sys_errno, EACCES);
    ck_assert_int_eq(ddpi_uv_error(&err, UV_EOF, "reading"), DDP_E_CLOSED);
    ck_assert_str_eq(err.msg, "reading: end of file");
    ck_assert_int_eq(err.sys_errno, 0);
    ck_assert_int_eq(ddpi_uv_error(NULL, UV_EOF, "reading"), DDP_E_CLOSED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("uvx");
    TCase *tcase = tcase_create("map");
    tcase_add_test(tcase, codes_have_a_status);
    tcase_add_test(tcase, the_sentence);
    suite_add_tcase(suite, tcase);
    return suite;
}
