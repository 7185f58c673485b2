/*
 * test_memory_file.c - files in memory: what their seals keep, how one that was received is judged,
 * and that a limit on files is a sentence.
 */
#include "check_main.h"
#include "memory_file.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 64 * 1024 };

static struct ddp_error err;

static int make(size_t now, int seals)
{
    int fd = -1;
    ck_assert_msg(ddpi_memory_file_make("test", SIZE, now, seals, &fd, &err) == DDP_OK, "%s",
                  err.msg);
    return fd;
}

START_TEST(seals_keep_the_size)
{
    int fixed = make(SIZE, DDPI_SEALS_FIXED), growing = make(0, DDPI_SEALS_GROWING);
    ck_assert_int_eq(ftruncate(fixed, SIZE - 1), -1);
    ck_assert_int_eq(ftruncate(fixed, SIZE + 1), -1);
    ck_assert_int_eq(ftruncate(growing, SIZE - 1), -1);
    ck_assert_int_eq(ftruncate(growing, SIZE + 1), 0);
    ck_assert_int_eq(fcntl(growing, F_ADD_SEALS, F_SEAL_GROW), -1);
    close(fixed);
    close(growing);
}
END_TEST

START_TEST(only_what_is_asked_for_is_allocated)
{
    struct stat info;
    int some = make(4096, DDPI_SEALS_FIXED), none = make(0, DDPI_SEALS_FIXED);
    ck_assert_int_eq(fstat(some, &info), 0);
    ck_assert_int_eq(info.st_size, SIZE);
    ck_assert(info.st_blocks > 0 && info.st_blocks * 512 < SIZE);
    ck_assert_int_eq(fstat(none, &info), 0);
    ck_assert_int_eq(info.st_blocks, 0);
    close(some);
    close(none);
}
END_TEST

START_TEST(a_file_that_was_received_is_judged)
{
    int growing = make(0, DDPI_SEALS_GROWING);
    ck_assert(ddpi_memory_file_has(growing, SIZE, DDPI_SEALS_GROWING));
    ck_assert(!ddpi_memory_file_has(growing, SIZE + 1, DDPI_SEALS_GROWING));
    ck_assert(!ddpi_memory_file_has(growing, SIZE, DDPI_SEALS_FIXED));
    ck_assert_int_eq(ddpi_memory_file_check(growing, SIZE, "tests", &err), DDP_OK);
    ck_assert_int_eq(ddpi_memory_file_check(growing, SIZE + 1, "tests", &err), DDP_E_PROTOCOL);
    ck_assert_str_eq(err.msg, "the shared memory that was received is not for tests");
    close(growing);
    ck_assert(!ddpi_memory_file_has(growing, 0, 0));
}
END_TEST

START_TEST(what_is_kept_stays)
{
    char text[8] = "";
    int fd = ddpi_memory_file_keep("test", "secret", 6);
    ck_assert_int_gt(fd, 0);
    ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(pread(fd, text, sizeof text, 0), 6);
    ck_assert_str_eq(text, "secret");
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}
END_TEST

START_TEST(a_limit_on_files_is_a_sentence)
{
    int fd = make(0, DDPI_SEALS_GROWING);
    const struct rlimit low = {SIZE - 1, RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    ck_assert_int_eq(ddpi_memory_file_make("test", SIZE, 0, DDPI_SEALS_FIXED, &(int){-1}, &err),
                     DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "counts as a file of 65536 bytes, and process"));
    ck_assert_ptr_nonnull(strstr(err.msg, "files of 65535 (RLIMIT_FSIZE)"));
    ck_assert_int_eq(ddpi_memory_file_check(fd, SIZE, "tests", &err), DDP_E_SYSTEM);
    close(fd);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("memory_file");
    TCase *tcase = tcase_create("memory_file");
    tcase_add_test(tcase, seals_keep_the_size);
    tcase_add_test(tcase, only_what_is_asked_for_is_allocated);
    tcase_add_test(tcase, a_file_that_was_received_is_judged);
    tcase_add_test(tcase, what_is_kept_stays);
    tcase_add_test(tcase, a_limit_on_files_is_a_sentence);
    suite_add_tcase(suite, tcase);
    return suite;
}
