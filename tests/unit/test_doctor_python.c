/*
 * test_doctor_python.c - which drivers and builds of PyTorch go together.
 */
#include "check_main.h"
#include "doctor_python.h"

#include <string.h>

static enum doctor_verdict verdict_of(const char *cuda, unsigned driver, const char *advice)
{
    struct doctor_finding finding = {.verdict = DOCTOR_OK};
    doctor_compare_driver(&finding, cuda, driver);
    ck_assert_ptr_nonnull(strstr(finding.fix, advice));
    return finding.verdict;
}

START_TEST(without_a_driver_any_build_will_do)
{
    ck_assert_int_eq(verdict_of("none", 0, ""), DOCTOR_OK);
    ck_assert_int_eq(verdict_of("13.2", 0, ""), DOCTOR_OK);
}
END_TEST

START_TEST(a_build_without_cuda_leaves_the_gpus_idle)
{
    ck_assert_int_eq(verdict_of("none", 580, "built for CUDA"), DOCTOR_WARN);
}
END_TEST

START_TEST(a_driver_may_be_too_old)
{
    static const struct {
        const char *cuda;
        unsigned first;
    } rows[] = {{"11.8", 450}, {"12.4", 525}, {"13.2", 580}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_int_eq(verdict_of(rows[i].cuda, rows[i].first, ""), DOCTOR_OK);
        ck_assert_int_eq(verdict_of(rows[i].cuda, rows[i].first - 1, "renew the driver"),
                         DOCTOR_WARN);
    }
}
END_TEST

START_TEST(its_version_is_found_in_the_text_of_the_kernel)
{
    static const struct {
        const char *text;
        unsigned number;
    } rows[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
         "GCC version:  gcc version 12.2.0\n",
         550},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
         580},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  575.57.08\n", 575},
        {"NVRM version: x86_64\n", 0},
        {"", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_uint_eq(doctor_driver_of(rows[i].text), rows[i].number);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("doctor_python");
    TCase *drivers = tcase_create("drivers");
    ADD_TESTS(drivers, without_a_driver_any_build_will_do,
              a_build_without_cuda_leaves_the_gpus_idle, a_driver_may_be_too_old,
              its_version_is_found_in_the_text_of_the_kernel);
    suite_add_tcase(suite, drivers);
    return suite;
}
