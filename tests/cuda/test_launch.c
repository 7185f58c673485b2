/*
 * test_launch.c - how a reduction is dealt out, and what becomes of it when the driver says no.
 * What the kernels make of it is in tests/gpu.
 */
#include "fixture.h"
#include "image.h"
#include "kernel_launch.h"

#include <stdlib.h>

/* ---- how it is dealt out ---- */

static struct ddpi_kernel_plan plan_of(ddp_dtype dtype, size_t count, uintptr_t in, uintptr_t out)
{
    struct ddpi_reduction work = {.in = {(const void *)in, (const void *)(in + 4096)},
                                  .out = {(void *)out},
                                  .nin = 2,
                                  .nout = 1,
                                  .count = count,
                                  .dtype = dtype,
                                  .op = DDP_SUM,
                                  .divisor = 1};
    return ddpi_kernel_plan(&work, 10);
}

START_TEST(packs_begin_where_all_buffers_lie_on_16_bytes)
{
    struct ddpi_kernel_plan plan = plan_of(DDP_FLOAT32, 103, 0x1000, 0x9000);
    ck_assert_uint_eq(plan.work.head, 0);
    ck_assert_uint_eq(plan.work.packs, 25); /* three are left over */
    plan = plan_of(DDP_FLOAT32, 103, 0x1004, 0x9014);
    ck_assert_uint_eq(plan.work.head, 3);
    ck_assert_uint_eq(plan.work.packs, 25);
    plan = plan_of(DDP_FLOAT16, 6, 0x1002, 0x9012); /* fewer than there are to the next 16 bytes */
    ck_assert_uint_eq(plan.work.head, 6);
    ck_assert_uint_eq(plan.work.packs, 0);
}
END_TEST

START_TEST(buffers_that_lie_differently_go_by_elements)
{
    struct ddpi_kernel_plan plan = plan_of(DDP_FLOAT64, 100, 0x1000, 0x9008);
    ck_assert_uint_eq(plan.work.packs, 0);
    ck_assert_uint_eq(plan.work.count, 100);
}
END_TEST

START_TEST(there_are_as_many_blocks_as_there_is_work_or_room_for)
{
    ck_assert_uint_eq(plan_of(DDP_FLOAT32, 1, 0x1000, 0x9000).blocks, 1);
    ck_assert_uint_eq(plan_of(DDP_FLOAT32, 4 * 256, 0x1000, 0x9000).blocks, 1);
    ck_assert_uint_eq(plan_of(DDP_FLOAT32, 4 * 257, 0x1000, 0x9000).blocks, 2);
    ck_assert_uint_eq(plan_of(DDP_FLOAT32, 4 * 257, 0x1000, 0x9004).blocks, 5);
    ck_assert_uint_eq(plan_of(DDP_FLOAT32, (size_t)1 << 40, 0x1000, 0x9000).blocks,
                      10 * DDPI_KERNEL_BLOCKS);
}
END_TEST

/* ---- what is launched ---- */

/* Signalling NaNs would come out of arithmetic as other bits. */
START_TEST(one_input_without_a_divisor_keeps_its_bits)
{
    ddp_dtype dtype = (ddp_dtype)_i;
    size_t size = ddp_dtype_size(dtype);
    enum { COUNT = 100 };
    uint8_t bits[COUNT * DDPI_DTYPE_SIZE_MOST], seen[sizeof bits];
    for (size_t i = 0; i < sizeof bits; i++)
        bits[i] = i % size == size - 1 ? 0x7f : i % size + 2 == size ? 0x81 : (uint8_t)(i + 1);
    start("1");
    ddpi_cu_deviceptr from = allocate(sizeof bits), to = allocate(sizeof bits + size) + size;
    upload(from, bits, sizeof bits);
    struct ddpi_kernels kernels;
    struct ddp_error err = {0};
    ddpi_kernels_init(&kernels, &cuda);
    const struct ddpi_reduction work = {.in = {(const void *)(uintptr_t)from},
                                        .out = {(void *)(uintptr_t)to},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = COUNT,
                                        .dtype = dtype,
                                        .op = DDP_MAX,
                                        .divisor = 1};
    ddpi_cu_stream stream = create_stream();
    ck_assert_int_eq(ddpi_kernels_launch(&kernels, &work, stream, &err), DDP_OK);
    CU(cuda.stream_synchronize(stream));
    download(seen, to, COUNT * size);
    ck_assert_mem_eq(seen, bits, COUNT * size);
    ddpi_kernels_finish(&kernels);
}
END_TEST

/* ---- what becomes of it when the driver says no ---- */

static ddp_status launch_one(struct ddpi_kernels *kernels, struct ddp_error *err)
{
    ddpi_cu_deviceptr at = allocate(64);
    struct ddpi_reduction work = {.in = {(const void *)(uintptr_t)at, (const void *)(uintptr_t)at},
                                  .out = {(void *)(uintptr_t)at},
                                  .nin = 2,
                                  .nout = 1,
                                  .count = 4,
                                  .dtype = DDP_INT32,
                                  .op = DDP_MAX,
                                  .divisor = 1};
    ddp_status status = ddpi_kernels_launch(kernels, &work, create_stream(), err);
    CU(cuda.mem_free(at));
    return status;
}

START_TEST(a_reduction_without_a_kernel)
{
    struct ddpi_kernels kernels;
    struct ddp_error err = {0};
    char at[64];
    struct ddpi_reduction work = {
        .in = {at, at}, .out = {at}, .nin = 2, .nout = 1, .count = 4, .divisor = 1};
    work.dtype = DDP_FLOAT8_E4M3;
    start("1");
    ddpi_kernels_init(&kernels, &cuda);
    ck_assert_int_eq(ddpi_kernels_launch(&kernels, &work, create_stream(), &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg, "there is no kernel for the sum of float8_e4m3");
    ck_assert_int_eq(ddpi_kernels_check(DDP_INT32, DDP_BIT_OR, NULL), DDP_E_INVALID);
    ck_assert_int_eq(ddpi_kernels_check(DDP_COMPLEX64, DDP_PRODUCT, NULL), DDP_E_INVALID);
    ck_assert_int_eq(ddpi_kernels_check(DDP_COMPLEX128, DDP_AVERAGE, NULL), DDP_OK);
    ddpi_kernels_finish(&kernels);
}
END_TEST

static const struct {
    const char *fault; /* once: the next launch succeeds */
    const char *sentence;
} refusals[] = {
    {"cuCtxGetDevice:1:201", "CUDA_ERROR_INVALID_CONTEXT"},
    {"cuDeviceGetAttribute:1:101", "multiprocessors"},
    {"cuModuleGetFunction:1:500", "ddp_reduce_copy_f32_sum"},
    {"cuModuleGetFunction:31:500", "ddp_copy_1"},
    {"cuLaunchKernel:1:719", "cannot launch the reduction of 4 int32"},
};

START_TEST(a_refusal_is_reported_and_leaves_nothing_behind)
{
    struct ddpi_kernels kernels;
    struct ddp_error err = {0};
    setenv("DDP_HOST_CUDA_FAIL", refusals[_i].fault, 1);
    start("1");
    ddpi_kernels_init(&kernels, &cuda);
    ck_assert_int_eq(launch_one(&kernels, &err), DDP_E_CUDA);
    ck_assert_msg(strstr(err.msg, refusals[_i].sentence) != NULL, "%s", err.msg);
    ck_assert_int_eq(launch_one(&kernels, &err), DDP_OK);
    ddpi_kernels_finish(&kernels);
    ck_assert_ptr_null(kernels.module);
}
END_TEST

START_TEST(an_image_that_is_refused_names_what_is_in_it)
{
    struct ddpi_kernels kernels;
    struct ddp_error err = {0};
    setenv("DDP_HOST_CUDA_FAIL", "cuModuleLoadData:1:2", 1);
    start("1");
    ddpi_kernels_init(&kernels, &cuda);
    ddp_status status = ddpi_kernels_load(&kernels, &err);
    if (ddpi_cuda_image_len == 0) {
        ck_assert_int_eq(status, DDP_E_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(err.msg, "this libddpcomm was built without nvcc"));
    } else {
        ck_assert_int_eq(status, DDP_E_CUDA);
        ck_assert_msg(strstr(err.msg, "CUDA_ERROR_OUT_OF_MEMORY") != NULL, "%s", err.msg);
        ck_assert_ptr_nonnull(strstr(err.msg, ddpi_cuda_image_targets));
    }
    ck_assert_int_eq(ddpi_kernels_load(&kernels, &err), DDP_OK);
    ddpi_cu_module loaded = kernels.module;
    ck_assert_int_eq(ddpi_kernels_load(&kernels, &err), DDP_OK);
    ck_assert_ptr_eq(kernels.module, loaded);
    ddpi_kernels_finish(&kernels);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("launch");
    TCase *tcase = tcase_create("plan");
    tcase_add_test(tcase, packs_begin_where_all_buffers_lie_on_16_bytes);
    tcase_add_test(tcase, buffers_that_lie_differently_go_by_elements);
    tcase_add_test(tcase, there_are_as_many_blocks_as_there_is_work_or_room_for);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("launches");
    tcase_add_loop_test(tcase, one_input_without_a_divisor_keeps_its_bits, 0, DDPI_DTYPES);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("refusals");
    tcase_add_loop_test(tcase, a_refusal_is_reported_and_leaves_nothing_behind, 0,
                        sizeof refusals / sizeof *refusals);
    tcase_add_test(tcase, a_reduction_without_a_kernel);
    tcase_add_test(tcase, an_image_that_is_refused_names_what_is_in_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
