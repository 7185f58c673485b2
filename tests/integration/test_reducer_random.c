/*
 * test_reducer_random.c - random training runs against a sequential model: options, used
 * parameters, order of gradients, and which steps are synchronised follow from a seed that all
 * ranks have.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/ddp_reducer.h>
#include <string.h>

enum { PARAMETERS_MAX = 12, COUNT_MAX = 300, STEPS = 12, RUNS = 24 };

/* What the seed says: the same on all ranks. */
struct run {
    uint64_t random;
    size_t nparameters;
    size_t counts[PARAMETERS_MAX];
    size_t limits[2];
    struct ddp_reducer_options options;
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % below;
}

static struct run make_run(uint64_t seed)
{
    struct run run = {.random = seed};
    run.nparameters = 1 + draw(&run.random, PARAMETERS_MAX);
    for (size_t p = 0; p < run.nparameters; p++)
        run.counts[p] = 1 + draw(&run.random, COUNT_MAX);
    run.limits[0] = 1 + draw(&run.random, 2000);
    run.limits[1] = 1 + draw(&run.random, 4000);
    run.options = (struct ddp_reducer_options){
        .size = sizeof run.options,
        .nparameters = run.nparameters,
        .nbucket_bytes = draw(&run.random, 3),
        .as_views = (uint32_t)draw(&run.random, 2),
        .find_unused = (uint32_t)draw(&run.random, 2),
        .delay_all_reduce = draw(&run.random, 5) == 0,
        .average = draw(&run.random, 2) != 0 ? DDP_REDUCER_AVERAGE_BEFORE : DDP_REDUCER_SUM,
        .no_progress_thread = (uint32_t)draw(&run.random, 2),
        .check_finite = (uint32_t)draw(&run.random, 2),
    };
    return run;
}

/* The gradients of all ranks, as the program has them. Elements of a gradient are equal. */
struct model {
    double value[WORLD_MAX][PARAMETERS_MAX];
    bool used[WORLD_MAX][PARAMETERS_MAX]; /* since the last synchronised step */
};

static void model_use(struct model *model, uint32_t rank, size_t p, double value)
{
    model->value[rank][p] = value + (model->used[rank][p] ? model->value[rank][p] : 0);
    model->used[rank][p] = true;
}

static void model_reduce(struct model *model, const struct run *run, uint32_t nranks)
{
    for (size_t p = 0; p < run->nparameters; p++) {
        double sum = 0;
        bool used = false;
        for (uint32_t rank = 0; rank < nranks; rank++) {
            sum += model->used[rank][p] ? model->value[rank][p] : 0;
            used = used || model->used[rank][p];
            model->used[rank][p] = false;
        }
        if (run->options.average == DDP_REDUCER_AVERAGE_BEFORE)
            sum /= nranks;
        for (uint32_t rank = 0; rank < nranks && used; rank++)
            model->value[rank][p] = sum;
    }
}

struct side {
    const struct run *run;
    float memory[PARAMETERS_MAX][COUNT_MAX];
    float *gradient[PARAMETERS_MAX];
    ddp_reducer *reducer;
};

static void side_open(struct side *side, const struct run *run, ddp_comm *comm)
{
    struct ddp_parameter parameters[PARAMETERS_MAX];
    struct ddp_reducer_options options = run->options;
    *side = (struct side){.run = run};
    for (size_t p = 0; p < run->nparameters; p++)
        parameters[p] = (struct ddp_parameter){
            .gradient = options.as_views ? NULL : side->memory[p], .count = run->counts[p]};
    options.parameters = parameters;
    options.bucket_bytes = run->limits;
    CHECK_OK(ddp_reducer_create(comm, &options, &side->reducer, err));
    for (size_t p = 0; p < run->nparameters; p++)
        side->gradient[p] = ddp_reducer_gradient(side->reducer, p);
}

static void write_gradient(struct side *side, const struct model *model, uint32_t rank, size_t p)
{
    for (size_t i = 0; i < side->run->counts[p]; i++)
        side->gradient[p][i] = (float)model->value[rank][p];
}

static void check_gradients(const struct side *side, const struct model *model, uint32_t rank)
{
    for (size_t p = 0; p < side->run->nparameters; p++)
        for (size_t i = 0; i < side->run->counts[p]; i++)
            CHECK(side->gradient[p][i] == (float)model->value[rank][p]);
}

/* Mark what this rank uses, in an order of its own; leave out or skip the others. */
static void mark_all(struct side *side, const struct model *model, const bool *uses, uint32_t rank,
                     uint64_t random)
{
    size_t order[PARAMETERS_MAX], count = side->run->nparameters;
    random += rank * 7919;
    for (size_t i = 0; i < count; i++) {
        size_t j = draw(&random, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < count; i++)
        if (uses[order[i]]) {
            write_gradient(side, model, rank, order[i]);
            CHECK_OK(ddp_reducer_ready(side->reducer, order[i], NULL, err));
        } else if (draw(&random, 2) != 0) {
            CHECK_OK(ddp_reducer_skip(side->reducer, order[i], err));
        }
}

static void run_random(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct run run = make_run(world->stage);
    struct side *side = malloc(sizeof *side);
    struct model model = {0};
    CHECK(side != NULL);
    side_open(side, &run, comm);
    for (size_t step = 0; step < STEPS; step++) {
        bool uses[WORLD_MAX][PARAMETERS_MAX], sync = draw(&run.random, 3) != 0;
        CHECK_OK(ddp_reducer_set_sync(side->reducer, sync, err));
        CHECK_OK(ddp_reducer_begin(side->reducer, err));
        for (uint32_t other = 0; other < world->nranks; other++)
            for (size_t p = 0; p < run.nparameters; p++) {
                uses[other][p] = !run.options.find_unused || draw(&run.random, 3) != 0;
                double value = (double)(draw(&run.random, 64) * 4);
                if (uses[other][p])
                    model_use(&model, other, p, value);
            }
        mark_all(side, &model, uses[rank], rank, run.random);
        CHECK_OK(ddp_reducer_finish(side->reducer, err));
        if (sync)
            model_reduce(&model, &run, world->nranks);
        check_gradients(side, &model, rank);
        CHECK(ddp_reducer_non_finite(side->reducer) == 0);
    }
    ddp_reducer_destroy(side->reducer);
    free(side);
}

START_TEST(runs_agree_with_the_model)
{
    for (uint32_t seed = 0; seed < RUNS; seed += (uint32_t)sample_stride()) {
        struct world world = {.nranks = _i == 0 ? 2 : 4,
                              .tcp = seed / (uint32_t)sample_stride() % 3 == 2,
                              .stage = seed * 2 + (uint32_t)_i,
                              .name = "random-reducer"};
        world_open(&world);
        world_run(&world, run_random);
        world_close(&world);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer_random");
    TCase *tests = tcase_create("reducer_random");
    tcase_add_loop_test(tests, runs_agree_with_the_model, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
