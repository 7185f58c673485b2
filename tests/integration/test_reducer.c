/*
 * test_reducer.c - gradients of real ranks, averaged by a reducer: each option that changes what is
 * reduced, gradients in any order and from several threads, steps that do not synchronise, unused
 * parameters, static graphs, ranks that run out of data, and the trace.
 */
#include "check_main.h"
#include "reducer_model.h"
#include "sample.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLANS = 13 };

/* ---- plans: every option that changes how gradients are reduced ---- */

struct plan {
    struct ddp_reducer_options options;
    uint64_t first_buckets, later_buckets; /* 0: depends on the order */
    bool sums;
};

static const struct plan plans[PLANS] = {
    {{.size = 0}, 2, 0, false},
    {{.as_views = 1}, 2, 0, false},
    {{.average = DDP_REDUCER_AVERAGE_AFTER}, 2, 0, false},
    {{.average = DDP_REDUCER_AVERAGE_AFTER, .predivide = 2}, 2, 0, false},
    {{.average = DDP_REDUCER_SUM}, 2, 0, true},
    {{.delay_all_reduce = 1}, 2, 2, false},
    {{.find_unused = 1}, 3, 3, false},
    {{.find_unused = 1,
      .as_views = 1,
      .bucket_bytes = reducer_model_tiny_limits,
      .nbucket_bytes = 2},
     0,
     0,
     false},
    {{.static_graph = 1}, 2, 0, false},
    {{.bucket_bytes = reducer_model_tiny_limits, .nbucket_bytes = 2}, 2, 0, false},
    {{.bucket_bytes = reducer_model_one_limit, .nbucket_bytes = 1, .as_views = 1}, 2, 0, false},
    {{.message_size = 5000}, 2, 0, false},
    {{.no_progress_thread = 1, .no_broadcast = 1}, 2, 0, false},
};

static void average(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const struct plan *plan = &plans[world->stage];
    struct ddp_reducer_options options = plan->options;
    struct reducer_model model;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    double factor = plan->sums ? 1 : 1.0 / world->nranks;
    for (size_t step = 0; step < STEPS; step++) {
        reducer_model_step(reducer, &model, rank, step);
        reducer_model_check(&model, world->nranks, step, factor);
        struct ddp_reducer_stats stats = {.size = sizeof stats};
        CHECK(ddp_reducer_get_stats(reducer, &stats) == DDP_OK);
        uint64_t expected = step == 0 ? plan->first_buckets : plan->later_buckets;
        CHECK(expected == 0 || stats.buckets == expected);
        CHECK(stats.steps == step + 1 && stats.exposed_us <= stats.reduce_us);
        CHECK(stats.reduce_us <= stats.step_us);
        CHECK(stats.rebuilds == (step > 0 && !options.delay_all_reduce && !options.find_unused));
    }
    ddp_reducer_destroy(reducer);
}

static void run_average(uint32_t nranks, uint32_t stage, bool tcp)
{
    struct world world = {.nranks = nranks, .stage = stage, .tcp = tcp, .name = "average"};
    world_open(&world);
    world_run(&world, average);
    world_close(&world);
}

START_TEST(averages_of_two_ranks)
{
    run_average(2, (uint32_t)_i, false);
}
END_TEST

START_TEST(averages_of_four_ranks_between_machines)
{
    run_average(4, (uint32_t)_i, true);
}
END_TEST

START_TEST(averages_of_one_and_three_ranks)
{
    run_average(1, 0, false);
    run_average(3, 0, false);
    run_average(3, 1, true);
}
END_TEST

/* ---- buckets ---- */

static void follow_rank_0(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.bucket_bytes = reducer_model_one_limit,
                                          .nbucket_bytes = 1};
    struct reducer_model model;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    size_t order[PARAMETERS], at = 0;
    reducer_model_step(reducer, &model, rank, 0);
    reducer_model_step(reducer, &model, rank, 1);
    reducer_model_shuffle(order, 0, 0);
    bool seen[PARAMETERS] = {false};
    struct ddp_reducer_stats all = {.size = sizeof all};
    CHECK(ddp_reducer_get_stats(reducer, &all) == DDP_OK);
    for (size_t bucket = 0; bucket < all.buckets; bucket++) {
        struct ddp_bucket_stats stats = {.size = sizeof stats};
        uint32_t members[PARAMETERS];
        CHECK(ddp_reducer_get_bucket(reducer, bucket, &stats, members, PARAMETERS) == DDP_OK);
        CHECK(stats.first_ready_us <= stats.full_us && stats.full_us <= stats.begin_us &&
              stats.begin_us <= stats.end_us);
        for (size_t i = 0; i < stats.gradients; i++) {
            CHECK(!seen[members[i]]);
            seen[members[i]] = true;
            at++;
        }
        /* In a bucket gradients have the order in which they came on rank 0. */
        for (size_t i = 1; i < stats.gradients; i++) {
            size_t before = 0, behind = 0;
            for (size_t k = 0; k < PARAMETERS; k++) {
                before = order[k] == members[i - 1] ? k : before;
                behind = order[k] == members[i] ? k : behind;
            }
            CHECK(before < behind);
        }
    }
    CHECK(at == PARAMETERS);
    struct ddp_bucket_stats none = {.size = sizeof none};
    CHECK(ddp_reducer_get_bucket(reducer, all.buckets, &none, NULL, 0) == DDP_E_INVALID);
    ddp_reducer_destroy(reducer);
    CHECK(world->nranks == 2);
}

START_TEST(buckets_follow_the_order_of_rank_0)
{
    struct world world = {.nranks = 2, .name = "order"};
    world_open(&world);
    world_run(&world, follow_rank_0);
    world_close(&world);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 4 };

struct marker {
    pthread_t thread;
    ddp_reducer *reducer;
    struct reducer_model *model;
    uint32_t rank;
    size_t step, first;
};

static void *mark_share(void *argument)
{
    struct marker *marker = argument;
    for (size_t p = marker->first; p < PARAMETERS; p += THREADS) {
        reducer_model_fill(marker->model, marker->rank, marker->step, p);
        CHECK_OK(ddp_reducer_ready(marker->reducer, p, NULL, err));
    }
    return NULL;
}

static void mark_in_threads(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.bucket_bytes = reducer_model_tiny_limits,
                                          .nbucket_bytes = 2};
    struct reducer_model model;
    struct marker markers[THREADS];
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    for (size_t step = 0; step < STEPS * 2; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t i = 0; i < THREADS; i++) {
            markers[i] = (struct marker){.reducer = reducer,
                                         .model = &model,
                                         .rank = rank,
                                         .step = step,
                                         .first = (i + rank) % THREADS};
            CHECK(pthread_create(&markers[i].thread, NULL, mark_share, &markers[i]) == 0);
        }
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(markers[i].thread, NULL);
        CHECK_OK(ddp_reducer_finish(reducer, err));
        reducer_model_check(&model, world->nranks, step, 1.0 / world->nranks);
    }
    ddp_reducer_destroy(reducer);
}

START_TEST(gradients_of_several_threads)
{
    struct world world = {.nranks = 2, .name = "threads"};
    world_open(&world);
    world_run(&world, mark_in_threads);
    world_close(&world);
}
END_TEST

/* The second mark comes before, while or after the step is finished. */
static void *mark_twice(void *argument)
{
    struct marker *marker = argument;
    struct ddp_error error;
    CHECK_OK(ddp_reducer_ready(marker->reducer, 0, NULL, err));
    CHECK(ddp_reducer_ready(marker->reducer, 0, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "the gradient of conv.weight is marked twice") != NULL ||
          strstr(error.msg, "the step is being finished by another thread") != NULL ||
          strstr(error.msg, "no step has begun") != NULL);
    return NULL;
}

static void finish_beside_marks(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const size_t races = sample_is_whole() ? 30 : 10;
    struct ddp_reducer_options options = {.bucket_bytes = reducer_model_tiny_limits,
                                          .nbucket_bytes = 2};
    struct reducer_model model;
    struct marker marker = {.reducer = reducer_model_create(comm, &model, &options)};
    for (size_t step = 0; step < races; step++) {
        struct ddp_error error;
        ddp_status status;
        CHECK_OK(ddp_reducer_begin(marker.reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++)
            reducer_model_fill(&model, rank, step, p);
        for (size_t p = 1; p < PARAMETERS; p++)
            CHECK_OK(ddp_reducer_ready(marker.reducer, p, NULL, err));
        CHECK(pthread_create(&marker.thread, NULL, mark_twice, &marker) == 0);
        while ((status = ddp_reducer_finish(marker.reducer, &error)) == DDP_E_INVALID)
            CHECK(strstr(error.msg, ": 1 of 11 gradients are not ready: conv.weight") != NULL);
        CHECK(status == DDP_OK);
        pthread_join(marker.thread, NULL);
        reducer_model_check(&model, world->nranks, step, 1.0 / world->nranks);
    }
    ddp_reducer_destroy(marker.reducer);
}

START_TEST(a_mark_that_races_the_end_of_a_step_counts_or_is_refused)
{
    struct world world = {.nranks = 2, .name = "race"};
    world_open(&world);
    world_run(&world, finish_beside_marks);
    world_close(&world);
}
END_TEST

/* ---- steps without synchronisation ---- */

static void accumulate(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.as_views = world->stage};
    struct reducer_model model;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    for (size_t step = 0; step < 6; step++) {
        bool sync = step % 3 == 2;
        CHECK_OK(ddp_reducer_set_sync(reducer, sync, err));
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++) {
            for (size_t i = 0; i < reducer_model_counts[p]; i++) {
                double before = step % 3 == 0 ? 0 : reducer_model_read(model.gradient[p], p, i);
                reducer_model_write(model.gradient[p], p, i,
                                    before + reducer_model_value(rank, step, p, i));
            }
            CHECK_OK(ddp_reducer_ready(reducer, p, NULL, err));
        }
        CHECK_OK(ddp_reducer_finish(reducer, err));
        for (size_t p = 0; sync && p < PARAMETERS; p++)
            for (size_t i = 0; i < reducer_model_counts[p]; i++) {
                double sum = 0;
                for (size_t one = step - 2; one <= step; one++)
                    sum += reducer_model_sum(world->nranks, one, p, i);
                reducer_model_check_value(reducer_model_read(model.gradient[p], p, i),
                                          sum / world->nranks);
            }
    }
    struct ddp_reducer_stats stats = {.size = sizeof stats};
    CHECK(ddp_reducer_get_stats(reducer, &stats) == DDP_OK && stats.steps == 2);
    ddp_reducer_destroy(reducer);
}

START_TEST(gradients_add_up_without_synchronisation)
{
    struct world world = {.nranks = 2, .name = "no-sync", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, accumulate);
    world_close(&world);
}
END_TEST

/* ---- unused parameters ---- */

static bool uses(uint32_t rank, size_t step, size_t p)
{
    return (p + rank + step) % 4 < 2 && p != 3;
}

static void leave_out(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.find_unused = 1, .as_views = world->stage};
    struct reducer_model model;
    double before[PARAMETERS];
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    for (size_t p = 0; p < PARAMETERS; p++)
        reducer_model_write(model.gradient[p], p, 0, before[p] = 77);
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++)
            if (uses(rank, step, p)) {
                reducer_model_fill(&model, rank, step, p);
                CHECK_OK(ddp_reducer_ready(reducer, p, NULL, err));
            } else if (p % 2 == 0) {
                CHECK_OK(ddp_reducer_skip(reducer, p, err));
            }
        CHECK_OK(ddp_reducer_finish(reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++) {
            double sum = 0;
            bool used = false;
            for (uint32_t other = 0; other < world->nranks; other++)
                if (uses(other, step, p)) {
                    used = true;
                    sum += reducer_model_value(other, step, p, 0);
                }
            before[p] = used ? sum / world->nranks : before[p];
            reducer_model_check_value(reducer_model_read(model.gradient[p], p, 0), before[p]);
        }
    }
    CHECK(reducer_model_read(model.gradient[3], 3, 0) == 77);
    ddp_reducer_destroy(reducer);
}

START_TEST(a_parameter_that_no_rank_uses_keeps_its_gradient)
{
    struct world world = {.nranks = 2, .name = "unused", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, leave_out);
    world_close(&world);
}
END_TEST

/* ---- static graphs ---- */

/* Parameter 2 is used twice in a step, parameter 4 by rank 1 only, parameter 6 by no rank. */
static uint32_t marks_of(uint32_t rank, size_t p)
{
    return p == 2 ? 2 : p == 4 ? rank : p == 6 ? 0 : 1;
}

static void repeat_graph(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.static_graph = 1, .as_views = world->stage};
    struct reducer_model model;
    struct ddp_error error;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    reducer_model_write(model.gradient[6], 6, 0, 5);
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t p = PARAMETERS; p-- > 0;)
            for (uint32_t mark = 0; mark < marks_of(rank, p); mark++) {
                reducer_model_fill(&model, rank, step, p);
                CHECK_OK(ddp_reducer_ready(reducer, p, NULL, err));
            }
        if (step == 2) {
            CHECK(ddp_reducer_ready(reducer, 2, NULL, &error) == DDP_E_INVALID);
            CHECK(strstr(error.msg, "fc.weight is marked 3 times, but was 2 times") != NULL);
        }
        CHECK_OK(ddp_reducer_finish(reducer, err));
        reducer_model_check_value(reducer_model_read(model.gradient[2], 2, 0),
                                  reducer_model_sum(2, step, 2, 0) / 2);
        reducer_model_check_value(reducer_model_read(model.gradient[4], 4, 1),
                                  reducer_model_value(1, step, 4, 1) / 2);
        CHECK(reducer_model_read(model.gradient[6], 6, 0) == 5);
    }
    CHECK_OK(ddp_reducer_begin(reducer, err));
    CHECK(ddp_reducer_finish(reducer, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "gradients are not ready: conv.weight, conv.bias, fc.weight") != NULL);
    ddp_reducer_destroy(reducer);
}

START_TEST(a_static_graph_repeats_its_first_step)
{
    struct world world = {.nranks = 2, .name = "static", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, repeat_graph);
    world_close(&world);
}
END_TEST

/* ---- ranks that run out of data ---- */

static uint32_t steps_of(uint32_t rank)
{
    return rank == 1 ? 6 : 2 + rank;
}

static void run_out(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float running = (float)rank;
    const struct ddp_parameter buffer = {
        .name = "running", .data = &running, .count = 1, .dtype = DDP_FLOAT32};
    struct ddp_reducer_options options = {
        .uneven_inputs = 1, .divide_by_active = world->stage, .buffers = &buffer, .nbuffers = 1};
    struct reducer_model model;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    CHECK(running == 0);
    for (size_t epoch = 0; epoch < 2; epoch++) {
        for (size_t step = 0; step < steps_of(rank); step++) {
            reducer_model_step(reducer, &model, rank, step);
            double sum = 0;
            uint32_t active = 0;
            for (uint32_t other = 0; other < world->nranks; other++)
                if (step < steps_of(other)) {
                    sum += reducer_model_value(other, step, 5, 9);
                    active++;
                }
            reducer_model_check_value(reducer_model_read(model.gradient[5], 5, 9),
                                      sum / (world->stage ? active : world->nranks));
        }
        reducer_model_write(model.data[0], 0, 0, 100.0 + rank);
        running = 50.0F + (float)rank;
        uint32_t last = 99;
        CHECK_OK(ddp_reducer_join(reducer, &last, err));
        CHECK(last == 1 && running == 51);
        CHECK(reducer_model_read(model.data[0], 0, 0) == 101);
    }
    ddp_reducer_destroy(reducer);
}

START_TEST(ranks_join_when_they_run_out_of_data)
{
    struct world world = {.nranks = 3, .name = "join", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, run_out);
    world_close(&world);
}
END_TEST

/* ---- traces ---- */

enum { TO_A_FILE, TO_A_PIPE };

/* A path of what is returned, which is read after the trace has been written: a trace is shorter
 * than what a pipe holds. */
static FILE *open_reader(uint32_t target, char path[64])
{
    int fds[2];
    if (target == TO_A_FILE) {
        FILE *file;
        snprintf(path, 64, "reducer_trace.%d", (int)getpid());
        CHECK((file = fopen(path, "w+")) != NULL);
        return file;
    }
    CHECK(pipe(fds) == 0 && fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    snprintf(path, 64, "/dev/fd/%d", fds[1]);
    return fdopen(fds[0], "r");
}

static void write_trace(struct world *world, uint32_t rank, ddp_comm *comm)
{
    char path[64], line[512];
    FILE *file = open_reader(world->stage, path);
    struct ddp_reducer_options options = {.trace = path};
    struct reducer_model model;
    ddp_reducer *reducer = reducer_model_create(comm, &model, &options);
    for (size_t step = 0; step < STEPS; step++)
        reducer_model_step(reducer, &model, rank, step);
    ddp_reducer_destroy(reducer);
    size_t slices = 0, commas = 0, ends = 0;
    CHECK(fgets(line, sizeof line, file) != NULL && strcmp(line, "[\n") == 0);
    while (fgets(line, sizeof line, file) != NULL) {
        slices += strstr(line, "\"ph\": \"X\"") != NULL;
        commas += strstr(line, "}},\n") != NULL;
        ends += strcmp(line, "]\n") == 0;
    }
    fclose(file);
    if (world->stage == TO_A_FILE)
        unlink(path);
    CHECK(slices >= 2 * STEPS + 4 && commas == slices - 1 && ends == 1);
    CHECK(world->nranks == 1);
}

START_TEST(a_trace_has_every_step)
{
    struct world world = {.nranks = 1, .name = "trace", .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, write_trace);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer");
    TCase *tests = tcase_create("reducer");
    add_worlds(tests, averages_of_two_ranks, 0, PLANS);
    add_sample(tests, averages_of_four_ranks_between_machines, 0, PLANS);
    tcase_add_test(tests, averages_of_one_and_three_ranks);
    tcase_add_test(tests, buckets_follow_the_order_of_rank_0);
    tcase_add_test(tests, gradients_of_several_threads);
    tcase_add_test(tests, a_mark_that_races_the_end_of_a_step_counts_or_is_refused);
    tcase_add_loop_test(tests, gradients_add_up_without_synchronisation, 0, 2);
    tcase_add_loop_test(tests, a_parameter_that_no_rank_uses_keeps_its_gradient, 0, 2);
    tcase_add_loop_test(tests, a_static_graph_repeats_its_first_step, 0, 2);
    tcase_add_loop_test(tests, ranks_join_when_they_run_out_of_data, 0, 2);
    tcase_add_loop_test(tests, a_trace_has_every_step, TO_A_FILE, TO_A_PIPE + 1);
    suite_add_tcase(suite, tests);
    return suite;
}
