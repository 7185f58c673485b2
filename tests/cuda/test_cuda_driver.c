/*
 * test_cuda_driver.c - the table of driver functions: found, or a sentence that says what is
 * missing.
 *
 * A library that is loaded by its path is found by its name from then on, so each test chooses its
 * driver so.
 */
#include "check_main.h"
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void preload(const char *variable)
{
    const char *path = getenv(variable);
    ck_assert_ptr_nonnull(path);
    ck_assert_msg(dlopen(path, RTLD_NOW) != NULL, "%s", dlerror());
}

static void expect_refusal(ddp_status status, const char *first, const char *second)
{
    struct ddp_error err = {0};
    struct ddpi_cuda cuda = {.version = -1};
    ck_assert_int_eq(ddpi_cuda_init(&cuda, &err), status);
    ck_assert_int_eq(err.status, status);
    ck_assert_msg(strstr(err.msg, first) != NULL, "%s", err.msg);
    ck_assert_msg(strstr(err.msg, second) != NULL, "%s", err.msg);
    ck_assert_int_eq(cuda.version, -1);
    ck_assert_int_eq(ddpi_cuda_init(&cuda, NULL), status);
}

START_TEST(a_machine_without_driver_is_told_what_to_install)
{
    void *real = dlopen("libcuda.so.1", RTLD_NOW);
    if (real == NULL)
        expect_refusal(DDP_E_UNSUPPORTED, "libcuda.so.1", "install the driver");
}
END_TEST

START_TEST(a_driver_that_cannot_be_asked_is_too_old)
{
    preload("DDP_TEST_OLD_DRIVER");
    expect_refusal(DDP_E_UNSUPPORTED, "of CUDA 11.8) has no function cuGetProcAddress",
                   "CUDA 12.0 or later is needed");
}
END_TEST

START_TEST(a_function_that_is_missing_is_named)
{
    preload("DDP_TEST_HOST_DRIVER");
    setenv("DDP_HOST_CUDA_VERSION", "11060", 1);
    expect_refusal(DDP_E_UNSUPPORTED, "cuStreamWaitValue32 of CUDA 11.7",
                   "CUDA 12.0 or later is needed");
}
END_TEST

START_TEST(a_driver_without_devices_says_who_may_hide_them)
{
    preload("DDP_TEST_HOST_DRIVER");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect_refusal(DDP_E_CUDA, "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device",
                   "CUDA_VISIBLE_DEVICES");
}
END_TEST

START_TEST(every_function_is_found_and_twice_the_same)
{
    preload("DDP_TEST_HOST_DRIVER");
    struct ddpi_cuda first = {0};
    struct ddpi_cuda second = {0};
    struct ddp_error err = {0};
    ck_assert_msg(ddpi_cuda_init(&first, &err) == DDP_OK, "%s", err.msg);
    ck_assert_int_eq(ddpi_cuda_init(&second, &err), DDP_OK);
    ck_assert_int_eq(first.version, 13000);
#define FOUND(member, name, version, parameters) \
    ck_assert_msg(first.member != NULL, #name);  \
    ck_assert_msg(first.member == second.member, #name);
    DDPI_CUDA_FUNCTION_MAP(FOUND)
#undef FOUND
    ddpi_cuda_finish(&first);
    ck_assert_ptr_null(first.library);
    ddpi_cuda_finish(&first);
    int count = 0;
    ck_assert_int_eq(second.device_get_count(&count), DDPI_CU_SUCCESS);
    ck_assert_int_eq(count, 1);
    ddpi_cuda_finish(&second);
}
END_TEST

START_TEST(errors_have_the_driver_s_own_name)
{
    preload("DDP_TEST_HOST_DRIVER");
    struct ddpi_cuda cuda = {0};
    struct ddp_error err = {0};
    ck_assert_int_eq(ddpi_cuda_init(&cuda, &err), DDP_OK);
    ck_assert_int_eq(ddpi_cuda_error(&cuda, &err, DDPI_CU_ERROR_ILLEGAL_ADDRESS, "kernel %d", 7),
                     DDP_E_CUDA);
    ck_assert_str_eq(err.msg,
                     "kernel 7: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access "
                     "was encountered");
    ck_assert_int_eq(err.status, DDP_E_CUDA);
    ck_assert_int_eq(ddpi_cuda_error(&cuda, &err, (ddpi_cu_result)4321, "copy"), DDP_E_CUDA);
    ck_assert_ptr_nonnull(strstr(err.msg, "(4321)"));
    ck_assert_int_eq(ddpi_cuda_error(&cuda, NULL, DDPI_CU_ERROR_UNKNOWN, "copy"), DDP_E_CUDA);
    ddpi_cuda_finish(&cuda);
}
END_TEST

START_TEST(a_forked_process_is_told_to_exec)
{
    preload("DDP_TEST_HOST_DRIVER");
    struct ddpi_cuda cuda = {0};
    ck_assert_int_eq(ddpi_cuda_init(&cuda, NULL), DDP_OK);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct ddp_error err = {0};
        ddp_status status = ddpi_cuda_init(&cuda, &err);
        _exit(status == DDP_E_CUDA && strstr(err.msg, "start it with exec") != NULL ? 0 : 1);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ddpi_cuda_finish(&cuda);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cuda_driver");
    TCase *tcase = tcase_create("table");
    ADD_TESTS(tcase, a_machine_without_driver_is_told_what_to_install,
              a_driver_that_cannot_be_asked_is_too_old, a_function_that_is_missing_is_named,
              a_driver_without_devices_says_who_may_hide_them,
              every_function_is_found_and_twice_the_same, errors_have_the_driver_s_own_name,
              a_forked_process_is_told_to_exec);
    suite_add_tcase(suite, tcase);
    return suite;
}
