/*
 * test_gpu_count.c - counting GPUs in a child process, with the NVML of this folder.
 */
#include "check_main.h"
#include "gpu_count.h"
#include "tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, IMPATIENCE_MS = 100 };

static char folder[] = "/tmp/ddprun_test_XXXXXX";
static struct ddp_error error;

static void say(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("DDP_TEST_NVML", folder, 1);
    say("gpus", "GPU-aaaaaaaa NVIDIA T9\nGPU-bbbbbbbb NVIDIA T9\n");
}

static void teardown(void)
{
    ck_assert_int_eq(tree_remove(folder), 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

static void counts(const char *visible, uint32_t expected)
{
    uint32_t count = 77;
    ck_assert_msg(gpu_count(visible, PATIENCE_MS, &count, &error) == DDP_OK, "%s", error.msg);
    ck_assert_uint_eq(count, expected);
}

START_TEST(what_cuda_will_show)
{
    counts(NULL, 2);
    counts("1", 1);
    counts("GPU-b,GPU-a", 2);
    counts("", 0);
    ck_assert_ptr_nonnull(strstr(error.msg, "none of the 2 GPUs"));
    say("gpus", "");
    counts(NULL, 0);
    ck_assert_ptr_nonnull(strstr(error.msg, "no GPU"));
}
END_TEST

START_TEST(one_that_does_not_answer_does_not_count)
{
    say("results", "nvmlDeviceGetName 999\n");
    counts(NULL, 2);
    say("results", "nvmlDeviceGetHandleByIndex_v2 15\n");
    counts(NULL, 0);
    say("results", "nvmlInit_v2 9\n");
    counts(NULL, 0);
    ck_assert_ptr_nonnull(strstr(error.msg, "no driver is loaded"));
}
END_TEST

static void fails(const char *results, const char *sentence)
{
    uint32_t count = 77;
    say("results", results);
    ck_assert_int_eq(gpu_count(NULL, PATIENCE_MS, &count, &error), DDP_E_SYSTEM);
    ck_assert_uint_eq(count, 77);
    ck_assert_msg(strstr(error.msg, sentence) != NULL, "%s", error.msg);
}

START_TEST(a_broken_driver_is_no_answer)
{
    fails("nvmlInit_v2 18\n", "reboot");
    fails("nvmlInit_v2 999\n", "An error of the test (999)");
    fails("nvmlDeviceGetCount_v2 999\n", "error 999");
}
END_TEST

START_TEST(nobody_waits_for_one_that_hangs)
{
    uint32_t count = 77;
    say("results", "nvmlInit_v2 hang\n");
    ck_assert_int_eq(gpu_count(NULL, IMPATIENCE_MS, &count, &error), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(error.msg, "NVML has not answered for 0.1 s"));
    ck_assert_uint_eq(count, 77);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gpu_count");
    TCase *tcase = tcase_create("gpu_count");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, what_cuda_will_show, one_that_does_not_answer_does_not_count,
              a_broken_driver_is_no_answer, nobody_waits_for_one_that_hangs);
    suite_add_tcase(suite, tcase);
    return suite;
}
