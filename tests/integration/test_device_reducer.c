/*
 * test_device_reducer.c - gradients in memory of a GPU: the same steps as with gradients in host
 * memory give the same bits, as lists and as views in memory of the program.
 */
#include "check_main.h"
#include "rig.h"

#include <ddprun/ddp_reducer.h>
#include <string.h>

enum { PARAMETERS = 6, STEPS = 3 };

static const size_t counts[PARAMETERS] = {1000, 3, 70001, 64, 1, 2500};

/* A reducer, and its gradients in one of the two memories. */
struct side {
    struct ddp_parameter parameters[PARAMETERS];
    struct ddp_reducer_options options;
    ddp_reducer *reducer;
};

static void open_side(struct side *side, ddp_comm *comm, ddp_reducer_average average, void *views,
                      bool on_device)
{
    static const size_t limits[] = {3000, 100000};
    side->options = (struct ddp_reducer_options){.size = sizeof side->options,
                                                 .parameters = side->parameters,
                                                 .nparameters = PARAMETERS,
                                                 .bucket_bytes = limits,
                                                 .nbucket_bytes = 2,
                                                 .average = average,
                                                 .as_views = views != NULL,
                                                 .view_memory = views,
                                                 .on_device = on_device};
    CHECK_OK(ddp_reducer_create(comm, &side->options, &side->reducer, err));
}

static void run_step(struct side *side, void *stream)
{
    CHECK_OK(ddp_reducer_begin(side->reducer, err));
    for (size_t i = PARAMETERS; i-- > 0;)
        CHECK_OK(ddp_reducer_ready(side->reducer, i, stream, err));
    CHECK_OK(ddp_reducer_finish(side->reducer, err));
}

/* Each step reduces the results of the one before. */
static void compare_steps(struct rig *rig, ddp_reducer_average average, bool views)
{
    struct side device = {.reducer = NULL}, host = {.reducer = NULL};
    struct twin block, gradients[PARAMETERS];
    for (size_t i = 0; i < PARAMETERS; i++) {
        device.parameters[i] = host.parameters[i] =
            (struct ddp_parameter){.count = counts[i], .dtype = DDP_FLOAT32};
        gradients[i] = rig_input(rig, views ? 0 : counts[i], DDP_FLOAT32);
        device.parameters[i].gradient = views ? NULL : twin_device(&gradients[i]);
        host.parameters[i].gradient = views ? NULL : gradients[i].host;
    }
    device.options =
        (struct ddp_reducer_options){.parameters = device.parameters, .nparameters = PARAMETERS};
    size_t bytes = ddp_reducer_view_bytes(&device.options);
    CHECK(bytes >= 73569 * 4 && bytes < 73569 * 4 + 128);
    block = rig_input(rig, views ? bytes / 4 : 0, DDP_FLOAT32);
    open_side(&device, rig->device, average, views ? twin_device(&block) : NULL, true);
    open_side(&host, rig->host, average, views ? block.host : NULL, false);
    for (size_t step = 0; step < STEPS; step++) {
        run_step(&device, rig->stream);
        run_step(&host, NULL);
    }
    ddp_reducer_destroy(device.reducer);
    ddp_reducer_destroy(host.reducer);
    rig_compare(rig, &block, DDP_FLOAT32);
    for (size_t i = 0; i < PARAMETERS; i++)
        rig_compare(rig, &gradients[i], DDP_FLOAT32);
}

static void all_averages(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (int views = 0; views < 2; views++) {
        compare_steps(&rig, DDP_REDUCER_AVERAGE_BEFORE, views);
        compare_steps(&rig, DDP_REDUCER_AVERAGE_AFTER, views);
        compare_steps(&rig, DDP_REDUCER_SUM, views);
    }
    rig_synchronize(&rig);
    rig_close(&rig);
}

START_TEST(steps_on_the_device_give_the_bits_of_the_host)
{
    struct world world = {.nranks = (uint32_t)_i, .name = "device-reducer"};
    world_open(&world);
    world_run(&world, all_averages);
    world_close(&world);
}
END_TEST

static void refuse_options(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float gradient;
    const struct ddp_parameter parameter = {.gradient = &gradient, .count = 1};
    struct ddp_reducer_options options = {.size = sizeof options,
                                          .parameters = &parameter,
                                          .nparameters = 1,
                                          .on_device = 1,
                                          .find_unused = 1};
    struct ddp_error error;
    ddp_reducer *reducer;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_UNSUPPORTED);
    CHECK(strstr(error.msg, "are for gradients in host memory") != NULL);
    options.find_unused = 0;
    options.as_views = 1;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "needs view_memory") != NULL);
    CHECK(world->nranks == 1 && rank == 0);
}

START_TEST(what_the_host_computes_is_refused)
{
    struct world world = {.nranks = 1, .name = "device-refusals"};
    world_open(&world);
    world_run(&world, refuse_options);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device_reducer");
    TCase *tests = tcase_create("device_reducer");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, steps_on_the_device_give_the_bits_of_the_host, 1, 4);
    tcase_add_test(tests, what_the_host_computes_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
