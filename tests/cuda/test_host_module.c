/*
 * test_host_module.c - kernels of the host driver: the C twins, on the memory that the device would
 * let them reach, with the parameter as it was at the launch.
 */
#include "fixture.h"
#include "kernels.h"

#include <stdint.h>
#include <stdlib.h>

enum { COUNT = 1000 };

static ddpi_cu_function find_function(const char *name)
{
    ddpi_cu_module module = NULL;
    ddpi_cu_function function = NULL;
    CU(cuda.module_load_data(&module, "any image"));
    CU(cuda.module_get_function(&function, module, name));
    return function;
}

static ddpi_cu_result launch(ddpi_cu_function function, const struct ddpi_kernel_work *work,
                             ddpi_cu_stream stream)
{
    struct ddpi_kernel_work copy = *work;
    void *parameters[] = {&copy};
    ddpi_cu_result result =
        cuda.launch_kernel(function, 1, 1, 1, 128, 1, 1, 0, stream, parameters, NULL);
    memset(&copy, 0xff, sizeof copy); /* it is ours again */
    return result;
}

static ddpi_cu_deviceptr filled(float value)
{
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = value * (float)i;
    ddpi_cu_deviceptr pointer = allocate(sizeof values);
    upload(pointer, values, sizeof values);
    return pointer;
}

static void *at(ddpi_cu_deviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

START_TEST(a_sum_is_that_of_the_host_path)
{
    start("1");
    ddpi_cu_deviceptr a = filled(1);
    ddpi_cu_deviceptr b = filled(2);
    const struct ddpi_kernel_work work = {.in = {at(a), at(b)},
                                          .out = {at(a), at(b)},
                                          .count = COUNT,
                                          .packs = COUNT / 4,
                                          .nin = 2,
                                          .nout = 2,
                                          .divisor = 1};
    ddpi_cu_stream stream = create_stream();
    CU(launch(find_function("ddp_reduce_copy_f32_sum"), &work, stream));
    CU(cuda.stream_synchronize(stream));
    float back[COUNT];
    for (int k = 0; k < 2; k++) {
        download(back, k == 0 ? a : b, sizeof back);
        for (int i = 0; i < COUNT; i++)
            ck_assert(back[i] == 3.0F * (float)i);
    }
}
END_TEST

START_TEST(a_copy_moves_bytes)
{
    start("1");
    ddpi_cu_deviceptr a = filled(1);
    ddpi_cu_deviceptr b = filled(0);
    const struct ddpi_kernel_work work = {
        .in = {at(a)}, .out = {at(b)}, .count = COUNT, .nin = 1, .nout = 1};
    CU(launch(find_function("ddp_copy_4"), &work, NULL));
    CU(cuda.stream_synchronize(NULL));
    float back[COUNT];
    download(back, b, sizeof back);
    ck_assert(back[COUNT - 1] == (float)(COUNT - 1));
}
END_TEST

/* Everything after a kernel that went wrong fails, whatever it is. */
static void expect_sticky(ddpi_cu_result expected, const struct ddpi_kernel_work *work)
{
    ddpi_cu_stream stream = create_stream();
    size_t size = 0;
    ddpi_cu_deviceptr pointer = 0;
    CU(launch(find_function("ddp_reduce_copy_f32_sum"), work, stream));
    ck_assert_int_eq(cuda.stream_synchronize(stream), expected);
    ck_assert_int_eq(cuda.stream_synchronize(NULL), expected);
    ck_assert_int_eq(cuda.mem_alloc(&pointer, 1), expected);
    ck_assert_int_eq(cuda.mem_get_info(&size, &size), expected);
}

START_TEST(memory_that_is_too_small_fails_the_context)
{
    start("1");
    ddpi_cu_deviceptr a = filled(1);
    const struct ddpi_kernel_work work = {
        .in = {at(a)}, .out = {at(a)}, .count = COUNT + 1, .nin = 1, .nout = 1, .divisor = 1};
    expect_sticky(DDPI_CU_ERROR_ILLEGAL_ADDRESS, &work);
}
END_TEST

START_TEST(host_memory_fails_the_context)
{
    start("1");
    ddpi_cu_deviceptr a = filled(1);
    float plain[COUNT];
    const struct ddpi_kernel_work work = {
        .in = {plain}, .out = {at(a)}, .count = COUNT, .nin = 1, .nout = 1, .divisor = 1};
    expect_sticky(DDPI_CU_ERROR_ILLEGAL_ADDRESS, &work);
}
END_TEST

START_TEST(packs_that_lie_askew_fail_the_context)
{
    start("1");
    ddpi_cu_deviceptr a = filled(1);
    const struct ddpi_kernel_work work = {.in = {at(a + 4)},
                                          .out = {at(a + 4)},
                                          .count = COUNT - 1,
                                          .packs = 1,
                                          .nin = 1,
                                          .nout = 1,
                                          .divisor = 1};
    expect_sticky(DDPI_CU_ERROR_MISALIGNED_ADDRESS, &work);
}
END_TEST

START_TEST(a_failed_context_lets_waiting_streams_go)
{
    start("1");
    ddpi_cu_stream held = create_stream();
    _Atomic uint32_t *open = create_word(0);
    ddpi_cu_function copy = find_function("ddp_copy_4");
    gate(held, open, 1);
    const struct ddpi_kernel_work work = {
        .in = {open}, .out = {at(4)}, .count = 1, .nin = 1, .nout = 1};
    CU(launch(copy, &work, create_stream()));
    CU_FAILS(ERROR_ILLEGAL_ADDRESS, cuda.stream_synchronize(held));
}
END_TEST

START_TEST(memory_of_another_device_needs_peer_access)
{
    start("2");
    ddpi_cu_deviceptr own = filled(0);
    CU(cuda.ctx_push_current(contexts[1]));
    ddpi_cu_deviceptr other = filled(1);
    CU(cuda.ctx_pop_current(NULL));
    const struct ddpi_kernel_work work = {
        .in = {at(other)}, .out = {at(own)}, .count = COUNT, .nin = 1, .nout = 1, .divisor = 1};
    CU(cuda.memcpy_async(own, other, COUNT * sizeof(float), NULL)); /* copies do not */
    CU(cuda.stream_synchronize(NULL));
    CU(cuda.ctx_enable_peer_access(contexts[1], 0));
    CU_FAILS(ERROR_PEER_ACCESS_ALREADY_ENABLED, cuda.ctx_enable_peer_access(contexts[1], 0));
    ddpi_cu_function function = find_function("ddp_reduce_copy_f32_sum");
    CU(launch(function, &work, NULL));
    CU(cuda.stream_synchronize(NULL));
    CU(cuda.ctx_push_current(contexts[1])); /* this way round it was not allowed */
    CU_FAILS(ERROR_INVALID_HANDLE, launch(function, &work, NULL));
    expect_sticky(DDPI_CU_ERROR_ILLEGAL_ADDRESS, &work);
}
END_TEST

START_TEST(peer_access_is_refused_where_there_is_none)
{
    setenv("DDP_HOST_CUDA_PEERS", "none", 1);
    start("2");
    int can = 1;
    CU(cuda.device_can_access_peer(&can, 0, 1));
    ck_assert_int_eq(can, 0);
    CU_FAILS(ERROR_PEER_ACCESS_UNSUPPORTED, cuda.ctx_enable_peer_access(contexts[1], 0));
}
END_TEST

START_TEST(what_is_wrong_with_a_launch_is_said_at_once)
{
    start("1");
    ddpi_cu_module module = NULL;
    ddpi_cu_function function = find_function("ddp_copy_4");
    const struct ddpi_kernel_work work = {0};
    void *parameters[] = {(void *)(uintptr_t)&work};
    CU_FAILS(ERROR_INVALID_VALUE,
             cuda.launch_kernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CU_FAILS(ERROR_INVALID_VALUE,
             cuda.launch_kernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, parameters, NULL));
    CU_FAILS(ERROR_INVALID_HANDLE, cuda.launch_kernel((ddpi_cu_function)at(8), 1, 1, 1, 1, 1, 1, 0,
                                                      NULL, parameters, NULL));
    CU(cuda.module_load_data(&module, "any image"));
    CU_FAILS(ERROR_NOT_FOUND, cuda.module_get_function(&function, module, "no_such_kernel"));
    CU(cuda.module_unload(module));
    CU_FAILS(ERROR_INVALID_HANDLE, cuda.module_unload(module));
    CU_FAILS(ERROR_INVALID_HANDLE, cuda.module_get_function(&function, module, "ddp_copy_4"));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("host_module");
    TCase *tcase = tcase_create("kernels");
    ADD_TESTS(tcase, a_sum_is_that_of_the_host_path, a_copy_moves_bytes,
              memory_that_is_too_small_fails_the_context, host_memory_fails_the_context,
              packs_that_lie_askew_fail_the_context, a_failed_context_lets_waiting_streams_go,
              memory_of_another_device_needs_peer_access,
              peer_access_is_refused_where_there_is_none,
              what_is_wrong_with_a_launch_is_said_at_once);
    suite_add_tcase(suite, tcase);
    return suite;
}
