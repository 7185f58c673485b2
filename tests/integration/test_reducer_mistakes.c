/*
 * test_reducer_mistakes.c - what a reducer says of options and calls that make no sense, of ranks
 * that differ, and of the death of one.
 */
#include "check_main.h"
#include "reducer_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- mistakes ---- */

struct mistake {
    struct ddp_reducer_options options;
    const char *sentence;
};

static const struct mistake mistakes[] = {
    {{.nparameters = 0}, "there is no parameter"},
    {{.nparameters = 1, .predivide = 2}, "predivide goes with"},
    {{.nparameters = 1, .predivide = -1}, "predivide is not a finite number above 0"},
    {{.nparameters = 1, .average = (ddp_reducer_average)9}, "the average is none of"},
    {{.nparameters = 1, .divide_by_active = 1}, "divide_by_active goes with uneven_inputs"},
    {{.nparameters = 1,
      .message_size = 3,
      .bucket_bytes = reducer_model_one_limit,
      .nbucket_bytes = 1},
     "message_size and bucket_bytes exclude each other"},
    {{.nparameters = 1, .nbuffers = 1}, "nbuffers is not 0, but buffers is NULL"},
    {{.nparameters = 1, .as_views = 1}, "with as_views the reducer has the memory of gradients"},
    {{.nparameters = 1, .trace = "/nowhere/trace"}, "/nowhere/trace"},
};

static void refuse_options(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float gradient;
    struct ddp_parameter parameter = {
        .name = "w", .gradient = &gradient, .count = 1, .dtype = DDP_FLOAT32};
    struct ddp_error error;
    ddp_reducer *reducer;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct ddp_reducer_options options = mistakes[i].options;
        options.size = sizeof options;
        options.parameters = &parameter;
        ddp_status status = ddp_reducer_create(comm, &options, &reducer, &error);
        CHECK(status != DDP_OK && reducer == NULL);
        if (strstr(error.msg, mistakes[i].sentence) == NULL)
            fprintf(stderr, "%s\n", error.msg);
        CHECK(strstr(error.msg, mistakes[i].sentence) != NULL);
    }
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = &parameter, .nparameters = 1};
    parameter.dtype = DDP_INT32;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "parameter 0 (w): gradients are floats or complex numbers") != NULL);
    CHECK(world->nranks == 1 && rank == 0);
}

START_TEST(options_that_make_no_sense_are_refused)
{
    struct world world = {.nranks = 1, .name = "options"};
    world_open(&world);
    world_run(&world, refuse_options);
    world_close(&world);
}
END_TEST

static void misuse(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.size = 0};
    struct reducer_model model;
    struct ddp_error error;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    CHECK(ddp_reducer_ready(reducer, 0, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "no step has begun") != NULL);
    CHECK(ddp_reducer_finish(reducer, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_join(reducer, NULL, &error) == DDP_E_INVALID);
    reducer_model_step(reducer, &model, rank, 0);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    CHECK(ddp_reducer_begin(reducer, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_set_sync(reducer, 0, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_skip(reducer, 0, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_ready(reducer, PARAMETERS, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "there is no parameter 11, only 0 to 10") != NULL);
    for (size_t p = 0; p < PARAMETERS; p++) {
        reducer_model_fill(&model, rank, 1, p);
        if (p != 3 && p != 4)
            CHECK_OK(ddp_reducer_ready(reducer, p, NULL, err));
    }
    CHECK(ddp_reducer_ready(reducer, 2, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "step 1: the gradient of fc.weight is marked twice") != NULL);
    struct ddp_reducer_stats stats = {.size = sizeof stats};
    CHECK(ddp_reducer_get_stats(reducer, &stats) == DDP_E_INVALID);
    CHECK(ddp_reducer_finish(reducer, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "step 1: 2 of 11 gradients are not ready: fc.bias, parameter 4;") !=
          NULL);
    /* The step goes on. */
    CHECK_OK(ddp_reducer_ready(reducer, 4, NULL, err));
    CHECK_OK(ddp_reducer_ready(reducer, 3, NULL, err));
    CHECK_OK(ddp_reducer_finish(reducer, err));
    reducer_model_check(&model, world->nranks, 1, 1.0 / world->nranks);
    ddp_reducer_destroy(reducer);
}

START_TEST(mistakes_in_a_step_have_no_effect)
{
    struct world world = {.nranks = 2, .name = "misuse"};
    world_open(&world);
    world_run(&world, misuse);
    world_close(&world);
}
END_TEST

/* All ranks get the same sentence, and the communicator stays usable. */
static void differ(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float gradient[8];
    struct ddp_parameter parameters[2] = {
        {.name = "a", .gradient = gradient, .count = 4, .dtype = DDP_FLOAT32},
        {.name = "b", .gradient = gradient + 4, .count = rank == 2 ? 3 : 4, .dtype = DDP_FLOAT32}};
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = parameters, .nparameters = 2};
    struct ddp_error error;
    ddp_reducer *reducer;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "parameter 1 (b) has 4 float32 without data on rank 0 and 3 float32 "
                            "without data on rank 2") != NULL);
    options.nparameters = rank == 1 ? 1 : 2;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "parameters: 2 on rank 0, 1 on rank 1") != NULL);
    options.nparameters = 1;
    options.find_unused = rank == 0;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "find_unused: 1 on rank 0, 0 on rank 1") != NULL);
    options.find_unused = 0;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    ddp_reducer_destroy(reducer);
    CHECK(world->nranks == 3);
}

START_TEST(ranks_with_other_parameters_are_named)
{
    struct world world = {.nranks = 3, .name = "differ"};
    world_open(&world);
    world_run(&world, differ);
    world_close(&world);
}
END_TEST

/* ---- failures ---- */

enum { VICTIM = 1 };

/* The victim stops before it has marked all gradients, so reductions of others are under way. */
static void die_in_step(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.bucket_bytes = reducer_model_tiny_limits,
                                          .nbucket_bytes = 2};
    struct reducer_model model;
    struct ddp_error error = {0};
    ddp_status status = DDP_OK;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    reducer_model_step(reducer, &model, rank, 0);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    for (size_t p = 0; p < PARAMETERS && status == DDP_OK; p++) {
        if (rank == VICTIM && p == world->stage) {
            world_step(world, rank);
            for (;;)
                pause();
        }
        reducer_model_fill(&model, rank, 1, p);
        status = ddp_reducer_ready(reducer, p, NULL, &error);
    }
    if (status == DDP_OK)
        status = ddp_reducer_finish(reducer, &error);
    world_report(world, rank, status, &error);
    CHECK(ddp_reducer_begin(reducer, &error) == status);
    ddp_reducer_destroy(reducer);
}

START_TEST(a_death_in_a_step_is_named)
{
    struct world world = {
        .nranks = 3, .name = "death", .stage = (uint32_t)_i * 5, .tcp = _i % 2 == 1};
    world_open(&world);
    world_start(&world, die_in_step);
    world_await_steps(&world, VICTIM, 1);
    world_kill_rank(&world, VICTIM);
    world_await_failures(&world, VICTIM);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        if (rank == VICTIM)
            continue;
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == DDP_E_PEER_DEAD, "%s", report->error.msg);
        ck_assert_msg(strstr(report->error.msg, "step 1: ") != NULL &&
                          strstr(report->error.msg, "rank 1") != NULL,
                      "%s", report->error.msg);
    }
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer mistakes");
    TCase *tests = tcase_create("reducer mistakes");
    tcase_add_test(tests, options_that_make_no_sense_are_refused);
    tcase_add_test(tests, mistakes_in_a_step_have_no_effect);
    tcase_add_test(tests, ranks_with_other_parameters_are_named);
    tcase_add_loop_test(tests, a_death_in_a_step_is_named, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
