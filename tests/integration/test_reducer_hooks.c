/*
 * test_reducer_hooks.c - hooks of a program and of the library, which reduce gradients in stages
 * and in other types; and what ranks are told of inf and NaN.
 */
#include "check_main.h"
#include "reducer_model.h"

#include <ddprun/ddp_hooks.h>
#include <math.h>
#include <stdlib.h>

/* ---- hooks ---- */

struct tally {
    uint64_t stages, states, freed;
};

/* Stage 0 sums the first gradient only, stage 1 the others; the last one divides all. */
static ddp_status two_parts(void *ctx, struct ddp_bucket *bucket, uint32_t stage,
                            struct ddp_operation *operation, int *ret_more, struct ddp_error *err)
{
    struct tally *tally = ctx;
    (void)err;
    tally->stages++;
    if (bucket->state == NULL) {
        bucket->state = malloc(1);
        tally->states++;
    }
    if (stage < 2) {
        operation->kind = DDP_KIND_ALL_REDUCE;
        operation->op = DDP_SUM;
        operation->dtype = bucket->dtype;
        operation->buffers = bucket->gradients + stage;
        operation->nbuffers = stage == 0 ? 1 : bucket->ngradients - 1;
        *ret_more = 1;
        return DDP_OK;
    }
    for (size_t i = 0; i < bucket->ngradients; i++)
        for (size_t k = 0; k < bucket->gradients[i].count; k++) {
            size_t p = bucket->parameters[i];
            void *memory = bucket->gradients[i].recv;
            reducer_model_write(memory, p, k, reducer_model_read(memory, p, k) / 2);
        }
    return DDP_OK;
}

static void forget_state(void *ctx, struct ddp_bucket *bucket)
{
    struct tally *tally = ctx;
    tally->freed += bucket->state != NULL;
    free(bucket->state);
}

static void use_hook(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct tally tally = {0};
    const struct ddp_comm_hook hook = {.stage = two_parts, .forget = forget_state, .ctx = &tally};
    struct ddp_reducer_options options = {.hook = &hook,
                                          .bucket_bytes = reducer_model_one_limit,
                                          .nbucket_bytes = 1,
                                          .as_views = world->stage};
    struct reducer_model model;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    for (size_t step = 0; step < STEPS; step++) {
        reducer_model_step(reducer, &model, rank, step);
        reducer_model_check(&model, 2, step, 0.5);
    }
    struct ddp_reducer_stats stats = {.size = sizeof stats};
    CHECK(ddp_reducer_get_stats(reducer, &stats) == DDP_OK);
    CHECK(tally.stages == 3 * (2 + (STEPS - 1) * stats.buckets));
    ddp_reducer_destroy(reducer);
    CHECK(tally.states == 2 + stats.buckets && tally.freed == tally.states);
}

START_TEST(a_hook_reduces_in_stages)
{
    struct world world = {.nranks = 2, .name = "hook", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, use_hook);
    world_close(&world);
}
END_TEST

/* ---- compression ---- */

enum { HALVES = 5000 };

static const struct ddp_compression compressions[] = {
    {.dtype = DDP_FLOAT32},
    {.dtype = DDP_FLOAT32, .average = DDP_REDUCER_AVERAGE_AFTER, .predivide = 4},
    {.dtype = DDP_FLOAT32, .average = DDP_REDUCER_SUM},
    {.dtype = DDP_BFLOAT16, .average = DDP_REDUCER_AVERAGE_AFTER},
    {.dtype = DDP_FLOAT16},
};

/* The bits of a whole number of at most 11 bits as float16. */
static uint16_t half_of(uint32_t value)
{
    if (value == 0)
        return 0;
    uint32_t exponent = 31 - (uint32_t)__builtin_clz(value);
    return (uint16_t)((exponent + 15) << 10 | ((value << (10 - exponent)) & 0x3ff));
}

/* Gradients of float16 that are exact in every type; their sums overflow no type. */
static void compress_halves(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static uint16_t gradient[HALVES];
    const struct ddp_compression *compression = &compressions[world->stage];
    struct ddp_comm_hook hook = ddp_compression_hook(compression);
    struct ddp_parameter parameter = {
        .name = "w", .gradient = gradient, .count = HALVES, .dtype = DDP_FLOAT16};
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = &parameter, .nparameters = 1, .hook = &hook};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    for (size_t step = 0; step < 3; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (uint32_t i = 0; i < HALVES; i++)
            gradient[i] = half_of((rank + 1) * 4 * (i % 8));
        CHECK_OK(ddp_reducer_ready(reducer, 0, NULL, err));
        CHECK_OK(ddp_reducer_finish(reducer, err));
        uint32_t divisor = compression->average == DDP_REDUCER_SUM ? 1 : world->nranks;
        for (uint32_t i = 0; i < HALVES; i++)
            CHECK(gradient[i] == half_of(40 * (i % 8) / divisor));
    }
    ddp_reducer_destroy(reducer);
}

START_TEST(gradients_are_reduced_in_another_type)
{
    struct world world = {.nranks = 4, .name = "compress", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, compress_halves);
    world_close(&world);
}
END_TEST

/* Casts around PowerSGD, of a matrix that has rank 1 on each rank; the sums of both have rank 1
 * too. */
static void compress_matrix(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { N = 40, M = 30 };
    static double gradient[N * M];
    struct ddp_power_sgd_options rules = {.size = sizeof rules, .start_step = 1};
    ddp_power_sgd *power_sgd;
    CHECK_OK(ddp_power_sgd_create(&rules, &power_sgd, err));
    struct ddp_comm_hook inner = ddp_power_sgd_hook(power_sgd);
    struct ddp_compression compression = {.dtype = DDP_FLOAT32, .inner = &inner};
    struct ddp_comm_hook hook = ddp_compression_hook(&compression);
    struct ddp_parameter parameter = {
        .gradient = gradient, .count = N * M, .rows = N, .dtype = DDP_FLOAT64};
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = &parameter, .nparameters = 1, .hook = &hook};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    for (size_t step = 0; step < 6; step++) {
        struct ddp_comm_stats before = {.size = sizeof before}, after = before;
        CHECK(ddp_comm_get_stats(comm, &before) == DDP_OK);
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t i = 0; i < N * M; i++)
            gradient[i] = (double)(i / M + 1) * (double)(i % M + 1) * (rank + 1);
        CHECK_OK(ddp_reducer_ready(reducer, 0, NULL, err));
        CHECK_OK(ddp_reducer_finish(reducer, err));
        CHECK(ddp_comm_get_stats(comm, &after) == DDP_OK);
        for (size_t i = 0; i < N * M; i++) {
            double expected = (double)(i / M + 1) * (double)(i % M + 1) * 1.5;
            CHECK(fabs(gradient[i] - expected) <= expected * 1e-4);
        }
        /* One operation without compression, two with it. */
        CHECK(after.seq - before.seq == (step == 0 ? 1 : step == 1 ? 3 : 2));
    }
    ddp_reducer_destroy(reducer);
    ddp_power_sgd_destroy(power_sgd);
    CHECK(world->nranks == 2);
}

START_TEST(power_sgd_keeps_matrices_of_its_rank)
{
    struct world world = {.nranks = 2, .name = "power-sgd"};
    world_open(&world);
    world_run(&world, compress_matrix);
    world_close(&world);
}
END_TEST

/* What rank 0 and 1 have in each step: a sum of so many products of a column and a row, which is
 * reduced exactly by matrices of RANK columns. */
enum { RANK = 4, ROWS = 40, COLUMNS = 30, BAD_STEP = 6 };
static const int products_of_step[] = {RANK, 0, RANK, RANK, 1, RANK, RANK, RANK, 0, 0, RANK};
enum { HARD_STEPS = sizeof products_of_step / sizeof *products_of_step };

static double product_sum(size_t i, int products)
{
    double sum = 0;
    for (int k = 0; k < products; k++)
        sum += sin((double)(i / COLUMNS) * (k + 1) * 0.3 + k) *
               cos((double)(i % COLUMNS) * (k + 2) * 0.21 + k);
    return sum;
}

static void check_hard_step(const float *gradient, size_t step)
{
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        double expected = 1.5 * product_sum(i, products_of_step[step]);
        CHECK(step == BAD_STEP ? isnan(gradient[i]) : fabs(gradient[i] - expected) < 1e-3);
    }
}

/* Gradients that are zero, of a lower rank, or not finite spoil their own step only. */
static void compress_hard_steps(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float gradient[ROWS * COLUMNS];
    struct ddp_power_sgd_options rules = {.size = sizeof rules,
                                          .rank = RANK,
                                          .start_step = 1,
                                          .min_compression_rate = 1,
                                          .no_error_feedback = world->stage};
    ddp_power_sgd *power_sgd;
    CHECK_OK(ddp_power_sgd_create(&rules, &power_sgd, err));
    struct ddp_comm_hook hook = ddp_power_sgd_hook(power_sgd);
    struct ddp_parameter parameter = {
        .gradient = gradient, .count = ROWS * COLUMNS, .rows = ROWS, .dtype = DDP_FLOAT32};
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = &parameter, .nparameters = 1, .hook = &hook};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    for (size_t step = 0; step < HARD_STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t i = 0; i < ROWS * COLUMNS; i++)
            gradient[i] = (float)(product_sum(i, products_of_step[step]) * (rank + 1));
        if (step == BAD_STEP && rank == 1)
            gradient[17] = INFINITY;
        CHECK_OK(ddp_reducer_ready(reducer, 0, NULL, err));
        CHECK_OK(ddp_reducer_finish(reducer, err));
        check_hard_step(gradient, step);
    }
    ddp_reducer_destroy(reducer);
    ddp_power_sgd_destroy(power_sgd);
}

START_TEST(power_sgd_outlives_a_hard_step)
{
    struct world world = {.nranks = 2, .name = "hard-steps", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, compress_hard_steps);
    world_close(&world);
}
END_TEST

/* ---- inf and NaN ---- */

/* Step 0 is good, in step 1 one rank has a NaN, in step 2 the sum overflows, or the cast to float16
 * does. */
static void overflow(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { N = 3000 };
    static float gradient[2][N];
    const struct ddp_compression compression = {.dtype = DDP_FLOAT16};
    struct ddp_comm_hook hook = ddp_compression_hook(&compression);
    const struct ddp_parameter parameters[2] = {{.gradient = gradient[0], .count = N},
                                                {.gradient = gradient[1], .count = N}};
    struct ddp_reducer_options options = {.size = sizeof options,
                                          .parameters = parameters,
                                          .nparameters = 2,
                                          .bucket_bytes = reducer_model_tiny_limits,
                                          .nbucket_bytes = 2,
                                          .average = DDP_REDUCER_AVERAGE_AFTER,
                                          .hook = world->stage ? &hook : NULL,
                                          .check_finite = 1};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    for (size_t step = 0; step < 5; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t i = 0; i < N; i++)
            gradient[0][i] = gradient[1][i] = 1;
        if (step == 1 && rank == 1)
            gradient[1][N - 1] = NAN;
        if (step == 2)
            gradient[0][7] = world->stage ? 1e30F : 3e38F;
        CHECK_OK(ddp_reducer_ready(reducer, 1, NULL, err));
        CHECK_OK(ddp_reducer_ready(reducer, 0, NULL, err));
        CHECK_OK(ddp_reducer_finish(reducer, err));
        CHECK(ddp_reducer_non_finite(reducer) == (step == 1 || step == 2));
        CHECK(gradient[1][0] == 1);
    }
    ddp_reducer_destroy(reducer);
}

START_TEST(inf_and_nan_are_told_to_all_ranks)
{
    struct world world = {.nranks = 3, .name = "finite", .stage = (uint32_t)_i & 1, .tcp = _i > 1};
    world_open(&world);
    world_run(&world, overflow);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer hooks");
    TCase *tests = tcase_create("reducer hooks");
    tcase_add_loop_test(tests, a_hook_reduces_in_stages, 0, 2);
    tcase_add_loop_test(tests, gradients_are_reduced_in_another_type, 0,
                        (int)(sizeof compressions / sizeof *compressions));
    tcase_add_test(tests, power_sgd_keeps_matrices_of_its_rank);
    tcase_add_loop_test(tests, power_sgd_outlives_a_hard_step, 0, 2);
    tcase_add_loop_test(tests, inf_and_nan_are_told_to_all_ranks, 0, 4);
    suite_add_tcase(suite, tests);
    return suite;
}
