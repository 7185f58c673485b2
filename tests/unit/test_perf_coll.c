/*
 * test_perf_coll.c - what the benchmarks of collectives count with: sizes, factors, and inputs
 * whose reductions are exact in every type and order.
 */
#include "check_main.h"
#include "perf_coll.h"
#include "reduce.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 5000, DTYPES = DDP_INT64 + 1, OPS = DDP_PRODUCT + 1 };

START_TEST(factors)
{
    ck_assert_double_eq(coll_bus_factor(COLL_ALL_REDUCE, 4), 1.5);
    ck_assert_double_eq(coll_bus_factor(COLL_ALL_REDUCE, 1), 0);
    ck_assert_double_eq(coll_bus_factor(COLL_REDUCE_SCATTER, 4), 0.75);
    ck_assert_double_eq(coll_bus_factor(COLL_ALL_GATHER, 8), 0.875);
    ck_assert_double_eq(coll_bus_factor(COLL_BROADCAST, 8), 1);
    ck_assert_double_eq(coll_bus_factor(COLL_REDUCE, 8), 1);
    ck_assert_double_eq(coll_bus_factor(COLL_SENDRECV, 2), 1);
}
END_TEST

START_TEST(shapes)
{
    struct coll_shape shape = coll_shape(COLL_ALL_REDUCE, 1027, DDP_FLOAT32, 4);
    ck_assert_uint_eq(shape.count, 256);
    ck_assert_uint_eq(shape.size, 1024);
    ck_assert_uint_eq(shape.send_len, 1024);
    ck_assert_uint_eq(shape.recv_len, 1024);
    shape = coll_shape(COLL_ALL_GATHER, 1027, DDP_FLOAT32, 3); /* parts of 336 bytes */
    ck_assert_uint_eq(shape.count, 84);
    ck_assert_uint_eq(shape.size, 1008);
    ck_assert_uint_eq(shape.send_len, 336);
    ck_assert_uint_eq(shape.recv_len, 1008);
    shape = coll_shape(COLL_REDUCE_SCATTER, 1027, DDP_BFLOAT16, 3);
    ck_assert_uint_eq(shape.count, 168);
    ck_assert_uint_eq(shape.send_len, 1008);
    ck_assert_uint_eq(shape.recv_len, 336);
    shape = coll_shape(COLL_BARRIER, 1027, DDP_FLOAT32, 3);
    ck_assert_uint_eq(shape.size, 0);
}
END_TEST

START_TEST(sizes)
{
    ck_assert_uint_eq(coll_next_size(8, 64, 1, 2), 16);
    ck_assert_uint_eq(coll_next_size(64, 64, 1, 2), 0);
    ck_assert_uint_eq(coll_next_size(8, 64, 16, 1), 24);
    ck_assert_uint_eq(coll_next_size(56, 64, 16, 1), 0);
    ck_assert_uint_eq(coll_next_size(0, 64, 1, 2), 0); /* 0 has no multiples */
    ck_assert_uint_eq(coll_next_size(UINT64_MAX / 2 + 1, UINT64_MAX, 1, 2), 0);
    ck_assert_uint_eq(coll_next_size(UINT64_MAX, UINT64_MAX, 1, 1), 0);
}
END_TEST

START_TEST(calls_have_two_names)
{
    enum coll_call call;
    ck_assert(coll_find("allreduce", &call) && call == COLL_ALL_REDUCE);
    ck_assert(coll_find("all_gather", &call) && call == COLL_ALL_GATHER);
    ck_assert(coll_find("reduce_scatter", &call) && call == COLL_REDUCE_SCATTER);
    ck_assert(!coll_find("launch", &call));
}
END_TEST

/* What coll_fill() expects of all ranks is what the library makes of their inputs, rank by rank
 * with a rounding each time, and all at once. */
START_TEST(reductions_are_exact)
{
    static uint64_t inputs[16][COUNT], expected[COUNT], folded[COUNT], step[COUNT];
    ddp_dtype dtype = (ddp_dtype)(_i / OPS);
    ddp_reduce_op op = (ddp_reduce_op)(_i % OPS);
    for (uint32_t ranks = 1; ranks <= 16; ranks++) {
        struct coll_pattern pattern = {.dtype = dtype, .op = op, .ranks = ranks, .to = ranks};
        struct ddpi_reduction all = {.nin = ranks,
                                     .nout = 1,
                                     .out = {folded},
                                     .count = COUNT,
                                     .dtype = dtype,
                                     .op = op,
                                     .divisor = op == DDP_AVERAGE ? ranks : 1};
        coll_fill(&pattern, 12345, COUNT, expected);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            pattern.from = rank;
            pattern.to = rank + 1;
            coll_fill(&pattern, 12345, COUNT, inputs[rank]);
            all.in[rank] = inputs[rank];
        }
        ddpi_reduce_many(&all);
        ck_assert_uint_eq(coll_differ(dtype, folded, expected, COUNT), 0);
        struct ddpi_reduction one = all;
        memcpy(step, inputs[0], COUNT * ddp_dtype_size(dtype));
        for (uint32_t rank = 1; rank < ranks; rank++) {
            one.nin = 2;
            one.in[0] = inputs[rank];
            one.in[1] = step;
            one.out[0] = step;
            one.divisor = op == DDP_AVERAGE && rank + 1 == ranks ? ranks : 1;
            ddpi_reduce_many(&one);
        }
        ck_assert_uint_eq(coll_differ(dtype, step, expected, COUNT), 0);
    }
}
END_TEST

START_TEST(inputs_depend_on_rank_and_index)
{
    float a[COUNT], b[COUNT], shifted[COUNT];
    struct coll_pattern pattern = {.dtype = DDP_FLOAT32, .op = DDP_SUM, .ranks = 8, .to = 1};
    coll_fill(&pattern, 0, COUNT, a);
    coll_fill(&pattern, 1, COUNT, shifted);
    pattern.from = 1;
    pattern.to = 2;
    coll_fill(&pattern, 0, COUNT, b);
    ck_assert_uint_gt(coll_differ(DDP_FLOAT32, a, b, COUNT), COUNT / 2);
    ck_assert_uint_gt(coll_differ(DDP_FLOAT32, a, shifted, COUNT), COUNT / 2);
    ck_assert_uint_eq(coll_differ(DDP_FLOAT32, a + 1, shifted, COUNT - 1), 0);
    memcpy(b, a, sizeof a);
    b[17] += 1;
    b[4000] += 1;
    ck_assert_uint_eq(coll_differ(DDP_FLOAT32, a, b, COUNT), 2);
}
END_TEST

static ddp_status parse(const char *const *words, int count, struct coll_options *ret)
{
    struct ddp_error err;
    return coll_options_parse(count, (char **)(uintptr_t)words, ret, &err);
}

#define PARSE(ret, ...)                                          \
    parse((const char *const[]){"allreduce", __VA_ARGS__, NULL}, \
          (int)(sizeof((const char *const[]){"", __VA_ARGS__}) / sizeof(char *)), ret)

START_TEST(options_of_nccl_tests)
{
    struct coll_options options;
    ck_assert_int_eq(PARSE(&options, "-b", "8", "-e", "256M", "-f", "2", "-n", "7", "-w", "3", "-c",
                           "0", "-o", "avg", "-d", "half", "-r", "1", "--device=cpu"),
                     DDP_OK);
    ck_assert_uint_eq(options.begin, 8);
    ck_assert_uint_eq(options.end, 256 << 20);
    ck_assert_uint_eq(options.factor, 2);
    ck_assert_uint_eq(options.iters, 7);
    ck_assert_uint_eq(options.warmup, 3);
    ck_assert_uint_eq(options.check, 0);
    ck_assert_int_eq(options.op, DDP_AVERAGE);
    ck_assert_int_eq(options.dtype, DDP_FLOAT16);
    ck_assert_uint_eq(options.root, 1);
    ck_assert_int_eq(options.place, COLL_CPU);
    ck_assert_int_eq(PARSE(&options, "--nproc=2", "--local=2"), DDP_E_INVALID);
    ck_assert_int_eq(PARSE(&options, "-d", "complex"), DDP_E_INVALID);
    ck_assert_int_eq(PARSE(&options, "8M"), DDP_E_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("perf_coll");
    TCase *tcase = tcase_create("math");
    ADD_TESTS(tcase, factors, shapes, sizes, calls_have_two_names);
    tcase_add_loop_test(tcase, reductions_are_exact, 0, DTYPES * OPS);
    tcase_add_test(tcase, inputs_depend_on_rank_and_index);
    tcase_add_test(tcase, options_of_nccl_tests);
    suite_add_tcase(suite, tcase);
    return suite;
}
