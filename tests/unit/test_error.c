/*
 * test_error.c - sentences of struct ddp_error: set, with errno, wrapped, and cut when too long.
 */
#include "check_main.h"
#include "error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char long_text[2 * DDP_ERROR_TEXT];

static const char *text_of(size_t len)
{
    memset(long_text, 'x', len);
    long_text[len] = '\0';
    return long_text;
}

static bool is_cut(const struct ddp_error *err)
{
    size_t len = strlen(err->msg);
    return len == DDP_ERROR_TEXT - 1 && strcmp(err->msg + len - 3, "...") == 0;
}

START_TEST(set_fills_everything)
{
    struct ddp_error err = {.sys_errno = 5};
    ck_assert_int_eq(ddpi_error_set(&err, DDP_E_TIMEOUT, "rank %d is late", 3), DDP_E_TIMEOUT);
    ck_assert_int_eq(err.status, DDP_E_TIMEOUT);
    ck_assert_int_eq(err.sys_errno, 0);
    ck_assert_str_eq(err.msg, "rank 3 is late");
}
END_TEST

START_TEST(sys_adds_the_reason)
{
    struct ddp_error err;
    ck_assert_int_eq(ddpi_error_sys(&err, ECONNREFUSED, "connect to %s", "a:1"), DDP_E_UNREACHABLE);
    ck_assert_int_eq(err.status, DDP_E_UNREACHABLE);
    ck_assert_int_eq(err.sys_errno, ECONNREFUSED);
    ck_assert_str_eq(err.msg, "connect to a:1: Connection refused");
    ck_assert_int_eq(ddpi_error_sys(&err, 99999, "open"), DDP_E_SYSTEM);
    ck_assert_str_eq(err.msg, "open: unknown system error");
}
END_TEST

START_TEST(wrap_puts_context_in_front)
{
    struct ddp_error err;
    ddp_status status = ddpi_error_sys(&err, EPIPE, "write");
    ck_assert_int_eq(ddpi_error_wrap(&err, status, "node %d", 7), DDP_E_CLOSED);
    ck_assert_str_eq(err.msg, "node 7: write: Broken pipe");
    ck_assert_int_eq(err.status, DDP_E_CLOSED);
    ck_assert_int_eq(err.sys_errno, EPIPE);
}
END_TEST

START_TEST(advise_puts_the_remedy_behind)
{
    struct ddp_error err;
    ddp_status status = ddpi_error_sys(&err, EACCES, "open '%s'", "a");
    ck_assert_int_eq(ddpi_error_advise(&err, status, "try '%s'", "b"), DDP_E_SYSTEM);
    ck_assert_str_eq(err.msg, "open 'a': Permission denied; try 'b'");
    ck_assert_int_eq(err.sys_errno, EACCES);
    ck_assert_int_eq(ddpi_error_advise(NULL, DDP_E_LIMIT, "x"), DDP_E_LIMIT);
}
END_TEST

START_TEST(nomem_names_the_size)
{
    struct ddp_error err;
    ck_assert_int_eq(ddpi_error_nomem(&err, 4096), DDP_E_NOMEM);
    ck_assert_str_eq(err.msg, "out of memory: cannot allocate 4096 bytes");
}
END_TEST

START_TEST(the_result_is_the_same_without_an_error_object)
{
    ck_assert_int_eq(ddpi_error_set(NULL, DDP_E_LIMIT, "x"), DDP_E_LIMIT);
    ck_assert_int_eq(ddpi_error_sys(NULL, ETIMEDOUT, "x"), DDP_E_TIMEOUT);
    ck_assert_int_eq(ddpi_error_wrap(NULL, DDP_E_DENIED, "x"), DDP_E_DENIED);
    ck_assert_int_eq(ddpi_error_nomem(NULL, 1), DDP_E_NOMEM);
}
END_TEST

/* One case per length around the end of the buffer. */
START_TEST(long_sentences_are_cut_and_say_so)
{
    size_t len = DDP_ERROR_TEXT - 16 + (size_t)_i;
    struct ddp_error err;
    ddpi_error_set(&err, DDP_E_INVALID, "%s", text_of(len));
    ck_assert(is_cut(&err) == (len >= DDP_ERROR_TEXT));

    ddpi_error_sys(&err, EPIPE, "%s", text_of(len - strlen(": Broken pipe")));
    ck_assert(is_cut(&err) == (len >= DDP_ERROR_TEXT));

    ddpi_error_set(&err, DDP_E_INVALID, "inner");
    ddpi_error_wrap(&err, DDP_E_INVALID, "%s", text_of(len));
    ck_assert(is_cut(&err) == (len + strlen(": inner") >= DDP_ERROR_TEXT));
    ddpi_error_set(&err, DDP_E_INVALID, "%s", text_of(len - strlen("outer: ")));
    ddpi_error_wrap(&err, DDP_E_INVALID, "outer");
    ck_assert(is_cut(&err) == (len >= DDP_ERROR_TEXT));
    ck_assert(strncmp(err.msg, "outer: xxx", 10) == 0);
}
END_TEST

START_TEST(a_sentence_cannot_drive_the_terminal)
{
    struct ddp_error err;
    ddpi_error_set(&err, DDP_E_INVALID, "there is no option '%s'", "--\x1b[2J\n\x7f\xc3\xa4");
    ck_assert_str_eq(err.msg, "there is no option '--?[2J??\xc3\xa4'");
    ddpi_error_wrap(&err, DDP_E_INVALID, "in '%s'", "a\tb");
    ck_assert_str_eq(err.msg, "in 'a\tb': there is no option '--?[2J??\xc3\xa4'");
}
END_TEST

START_TEST(too_many_open_files_come_with_advice)
{
    struct ddp_error err;
    char text[DDP_ERROR_TEXT], limit[64];
    struct rlimit files;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    snprintf(limit, sizeof limit, "process %d may have %llu open files", getpid(),
             (unsigned long long)files.rlim_cur);
    static const int errnos[] = {EMFILE, ETOOMANYREFS};
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++) {
        ddp_status status = ddpi_error_sys(&err, errnos[i], "open");
        ck_assert_int_eq(ddpi_error_advise_descriptors(&err, status), status);
        ck_assert_ptr_nonnull(strstr(err.msg, limit));
        ck_assert_ptr_nonnull(strstr(err.msg, "ulimit -n"));
    }
    ddpi_errno_describe(ENFILE, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "; this machine has reached its limit"));
    ck_assert_ptr_nonnull(strstr(text, "/proc/sys/fs/file-max"));
}
END_TEST

START_TEST(other_errors_come_without)
{
    struct ddp_error err;
    char text[DDP_ERROR_TEXT];
    ck_assert(!ddpi_errno_lacks_descriptors(ENOMEM));
    ddpi_error_sys(&err, ECONNREFUSED, "connect");
    ck_assert_int_eq(ddpi_error_advise_descriptors(&err, err.status), DDP_E_UNREACHABLE);
    ck_assert_str_eq(err.msg, "connect: Connection refused");
    ddpi_errno_describe(ECONNREFUSED, text, sizeof text);
    ck_assert_str_eq(text, "Connection refused");
    ck_assert_int_eq(ddpi_error_advise_descriptors(NULL, DDP_E_SYSTEM), DDP_E_SYSTEM);
}
END_TEST

/* What the caller's struct holds then is of an earlier call, or of none. */
START_TEST(a_success_leaves_the_error_alone)
{
    struct ddp_error err, before;
    memset(&err, 'x', sizeof err);
    err.sys_errno = EMFILE;
    err.msg[0] = '\0'; /* else the end of the text would be looked for beyond the struct */
    before = err;
    ck_assert_int_eq(ddpi_error_advise_descriptors(&err, DDP_OK), DDP_OK);
    ck_assert_mem_eq(&err, &before, sizeof err);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("sentences");
    ADD_TESTS(tcase, set_fills_everything, sys_adds_the_reason, wrap_puts_context_in_front,
              advise_puts_the_remedy_behind, nomem_names_the_size,
              the_result_is_the_same_without_an_error_object);
    tcase_add_loop_test(tcase, long_sentences_are_cut_and_say_so, 0, 24);
    ADD_TESTS(tcase, a_sentence_cannot_drive_the_terminal, too_many_open_files_come_with_advice,
              other_errors_come_without, a_success_leaves_the_error_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
