/*
 * test_reducer_stops.c - a rank of a reducer dies, or is stopped and goes on later, at each point
 * of a step: before the reducer is created, before a step, before each gradient, before the step is
 * finished, and after. Each rank in turn; the first step, which has one bucket, and the second one,
 * which makes a bucket for each gradient.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/ddp_reducer.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { RANKS = 3, PARAMETERS = 4, COUNT = 3000, STEPS = 4, EVENT_STEPS = 2 };

enum point { CREATE, BEGIN, GRADIENT, FINISH = GRADIENT + PARAMETERS, AFTER, POINTS };

static const struct variant {
    bool tcp;
    struct ddp_reducer_options options;
} variants[] = {
    {.options = {.size = 0}},
    {.tcp = true},
    {.options = {.as_views = 1}},
    {.options = {.find_unused = 1}},
};

enum { VARIANTS = sizeof variants / sizeof *variants, CASES = VARIANTS * EVENT_STEPS * RANKS };

/* What happens where; world->stage says it. */
struct event {
    int signal;
    uint32_t victim, step, point, variant;
};

static struct event event_of(uint32_t stage)
{
    return (struct event){.signal = stage % 2 == 0 ? SIGKILL : SIGSTOP,
                          .point = stage / 2 % POINTS,
                          .victim = stage / 2 / POINTS % RANKS,
                          .step = stage / 2 / POINTS / RANKS % EVENT_STEPS,
                          .variant = stage / 2 / POINTS / RANKS / EVENT_STEPS};
}

static uint32_t stage_of(int number, uint32_t point, int signal)
{
    return ((uint32_t)number * POINTS + point) * 2 + (signal == SIGSTOP);
}

/* Every rank comes here; the victim no further. */
static void reach(struct world *world, uint32_t rank, uint32_t step, uint32_t point)
{
    struct event event = event_of(world->stage);
    if (step != event.step || point != event.point)
        return;
    world_step(world, rank);
    if (rank == event.victim) {
        world_await_joined(world);
        raise(event.signal);
    }
}

/* ---- a rank ---- */

static float gradients[PARAMETERS][COUNT];

static float value_of(uint32_t rank, uint32_t step, size_t parameter)
{
    return (float)((rank + 1) * 10 + step * 100 + parameter);
}

static ddp_status create(ddp_comm *comm, const struct variant *variant, ddp_reducer **ret_reducer,
                         struct ddp_error *err)
{
    static const size_t smallest = 1;
    struct ddp_parameter parameters[PARAMETERS];
    struct ddp_reducer_options options = variant->options;
    for (size_t p = 0; p < PARAMETERS; p++)
        parameters[p] = (struct ddp_parameter){.gradient = options.as_views ? NULL : gradients[p],
                                               .count = COUNT,
                                               .dtype = DDP_FLOAT32};
    options.size = sizeof options;
    options.parameters = parameters;
    options.nparameters = PARAMETERS;
    options.bucket_bytes = &smallest;
    options.nbucket_bytes = 1;
    options.average = DDP_REDUCER_SUM;
    return ddp_reducer_create(comm, &options, ret_reducer, err);
}

static ddp_status take_step(struct world *world, uint32_t rank, ddp_reducer *reducer, uint32_t step,
                            struct ddp_error *err)
{
    reach(world, rank, step, BEGIN);
    ddp_status status = ddp_reducer_begin(reducer, err);
    for (size_t p = PARAMETERS; status == DDP_OK && p-- > 0;) {
        float *gradient = ddp_reducer_gradient(reducer, p);
        for (size_t i = 0; i < COUNT; i++)
            gradient[i] = value_of(rank, step, p);
        reach(world, rank, step, GRADIENT + (uint32_t)p);
        status = ddp_reducer_ready(reducer, p, NULL, err);
    }
    if (status == DDP_OK)
        reach(world, rank, step, FINISH);
    if (status == DDP_OK)
        status = ddp_reducer_finish(reducer, err);
    if (status == DDP_OK)
        reach(world, rank, step, AFTER);
    return status;
}

static void check_sums(const ddp_reducer *reducer, uint32_t step)
{
    for (size_t p = 0; p < PARAMETERS; p++) {
        const float *gradient = ddp_reducer_gradient(reducer, p);
        float sum = 0;
        for (uint32_t rank = 0; rank < RANKS; rank++)
            sum += value_of(rank, step, p);
        for (size_t i = 0; i < COUNT; i++)
            CHECK(gradient[i] == sum);
    }
}

static void train(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_reducer *reducer = NULL;
    reach(world, rank, event_of(world->stage).step, CREATE);
    ddp_status status = create(comm, &variants[event_of(world->stage).variant], &reducer, &error);
    for (uint32_t step = 0; status == DDP_OK && step < STEPS; step++) {
        status = take_step(world, rank, reducer, step, &error);
        if (status == DDP_OK)
            check_sums(reducer, step);
    }
    if (status != DDP_OK && reducer != NULL)
        CHECK(ddp_reducer_begin(reducer, &error) == status);
    ddp_reducer_destroy(reducer);
    world_report(world, rank, status, &error);
}

/* ---- tests ---- */

static void open_case(struct world *world, int number, uint32_t point, int signal)
{
    uint32_t stage = stage_of(number, point, signal);
    *world = (struct world){.nranks = RANKS,
                            .name = "stops",
                            .stage = stage,
                            .tcp = variants[event_of(stage).variant].tcp};
    world_open(world);
    world_start(world, train);
}

static void check_death(const struct world *world, const struct event *event)
{
    char dead[32];
    snprintf(dead, sizeof dead, "rank %u", event->victim);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct report *report = &world->reports[rank];
        if (rank == event->victim)
            continue;
        ck_assert_msg(report->status == DDP_E_PEER_DEAD && strstr(report->error.msg, dead) != NULL,
                      "point %u of step %u, rank %u: %s (%s)", event->point, event->step, rank,
                      report->error.msg, ddp_status_name(report->status));
        ck_assert_msg(event->point == CREATE || strstr(report->error.msg, "step ") != NULL, "%s",
                      report->error.msg);
    }
}

START_TEST(survivors_name_the_rank_that_died)
{
    for (uint32_t point = 0; point < POINTS; point++) {
        struct world world;
        open_case(&world, _i, point, SIGKILL);
        struct event event = event_of(world.stage);
        ck_assert_int_eq(waitpid(world.pids[event.victim], NULL, 0), world.pids[event.victim]);
        world.pids[event.victim] = 0;
        world_await_failures(&world, event.victim);
        world_join(&world);
        check_death(&world, &event);
        world_close(&world);
    }
}
END_TEST

/* The others come to the point as far as they can without the victim, which then goes on. */
START_TEST(a_rank_that_was_stopped_goes_on)
{
    for (uint32_t point = 0; point < POINTS; point++) {
        struct world world;
        int state;
        open_case(&world, _i, point, SIGSTOP);
        struct event event = event_of(world.stage);
        pid_t pid = world.pids[event.victim];
        ck_assert_int_eq(waitpid(pid, &state, WUNTRACED), pid);
        ck_assert(WIFSTOPPED(state));
        for (uint32_t rank = 0; rank < RANKS && point <= BEGIN; rank++)
            world_await_steps(&world, rank, 1);
        ck_assert_int_eq(kill(pid, SIGCONT), 0);
        world_join(&world);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            ck_assert_msg(world.reports[rank].status == DDP_OK, "%s",
                          world.reports[rank].error.msg);
        world_close(&world);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer_stops");
    TCase *tests = tcase_create("reducer_stops");
    add_sample(tests, survivors_name_the_rank_that_died, 0, CASES);
    add_sample(tests, a_rank_that_was_stopped_goes_on, 0, CASES);
    suite_add_tcase(suite, tests);
    return suite;
}
