/*
 * test_reducer.c - gradients of real ranks, averaged by a reducer: each option that changes what is
 * reduced, gradients in any order and from several threads, mistakes of the program, and deaths.
 *
 * Gradients are small whole numbers, so that sums are exact, and averages over 2 or 4 ranks are
 * too.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/ddp_hooks.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { PARAMETERS = 11, STEPS = 5, LARGEST = 280000, PLANS = 13 };

static const size_t counts[PARAMETERS] = {300, 1, LARGEST, 77, 5, 4096, 1, 31000, 2, 640, 9};
static const char *const names[PARAMETERS] = {"conv.weight", "conv.bias", "fc.weight", "fc.bias",
                                              NULL};

/* The gradients of a rank; parameters with an odd number that is above 6 are float64. */
struct model {
    float *data[PARAMETERS];
    void *gradient[PARAMETERS];
    struct ddp_parameter parameters[PARAMETERS];
};

static bool is_double(size_t parameter)
{
    return parameter > 6 && parameter % 2 == 1;
}

static double value_of(uint32_t rank, size_t step, size_t parameter, size_t i)
{
    return (double)((rank + 1) * 8 + step * 16 + parameter * 4 + i % 5 * 32);
}

static double read_value(const void *memory, size_t parameter, size_t i)
{
    return is_double(parameter) ? ((const double *)memory)[i] : (double)((const float *)memory)[i];
}

static void write_value(void *memory, size_t parameter, size_t i, double value)
{
    if (is_double(parameter))
        ((double *)memory)[i] = value;
    else
        ((float *)memory)[i] = (float)value;
}

static void model_init(struct model *model, uint32_t rank, bool views)
{
    for (size_t p = 0; p < PARAMETERS; p++) {
        size_t bytes = counts[p] * (is_double(p) ? 8 : 4);
        model->data[p] = calloc(1, bytes);
        model->gradient[p] = views ? NULL : calloc(1, bytes);
        CHECK(model->data[p] != NULL);
        for (size_t i = 0; i < counts[p]; i++)
            write_value(model->data[p], p, i, 1000.0 * rank + (double)p);
        model->parameters[p] =
            (struct ddp_parameter){.name = names[p],
                                   .data = model->data[p],
                                   .gradient = model->gradient[p],
                                   .count = counts[p],
                                   .dtype = is_double(p) ? DDP_FLOAT64 : DDP_FLOAT32};
    }
}

static ddp_reducer *create(ddp_comm *comm, struct model *model, struct ddp_reducer_options *options)
{
    ddp_reducer *reducer;
    options->size = sizeof *options;
    options->parameters = model->parameters;
    options->nparameters = PARAMETERS;
    model_init(model, ddp_comm_rank(comm), options->as_views != 0);
    for (size_t p = 0; p < PARAMETERS; p++)
        model->parameters[p].gradient = options->as_views ? NULL : model->gradient[p];
    CHECK_OK(ddp_reducer_create(comm, options, &reducer, err));
    for (size_t p = 0; p < PARAMETERS; p++) {
        model->gradient[p] = ddp_reducer_gradient(reducer, p);
        CHECK(model->gradient[p] != NULL);
        for (size_t i = 0; i < counts[p]; i++)
            CHECK(options->no_broadcast || read_value(model->data[p], p, i) == (double)p);
    }
    CHECK(ddp_reducer_gradient(reducer, PARAMETERS) == NULL);
    return reducer;
}

static void fill(struct model *model, uint32_t rank, size_t step, size_t p)
{
    for (size_t i = 0; i < counts[p]; i++)
        write_value(model->gradient[p], p, i, value_of(rank, step, p, i));
}

/* Another order on each rank, and in each step. */
static void shuffle(size_t order[PARAMETERS], uint32_t rank, size_t step)
{
    uint32_t state = 12345 + rank * 77 + (uint32_t)step * 1009;
    for (size_t i = 0; i < PARAMETERS; i++)
        order[i] = i;
    for (size_t i = PARAMETERS - 1; i > 0; i--) {
        state = state * 1664525 + 1013904223;
        size_t j = (state >> 8) % (i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

static double sum_of(uint32_t ranks, size_t step, size_t p, size_t i)
{
    double sum = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        sum += value_of(rank, step, p, i);
    return sum;
}

static void check_value(double seen, double expected)
{
    CHECK(fabs(seen - expected) <= fabs(expected) * 1e-6);
}

/* Every gradient is the sum of step @step times @factor. */
static void check_gradients(const struct model *model, uint32_t ranks, size_t step, double factor)
{
    for (size_t p = 0; p < PARAMETERS; p++)
        for (size_t i = 0; i < counts[p]; i++)
            check_value(read_value(model->gradient[p], p, i), sum_of(ranks, step, p, i) * factor);
}

static void run_step(ddp_reducer *reducer, struct model *model, uint32_t rank, size_t step)
{
    size_t order[PARAMETERS];
    shuffle(order, rank, step);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    for (size_t i = 0; i < PARAMETERS; i++) {
        fill(model, rank, step, order[i]);
        CHECK_OK(ddp_reducer_ready(reducer, order[i], NULL, err));
    }
    CHECK_OK(ddp_reducer_finish(reducer, err));
}

/* ---- plans: every option that changes how gradients are reduced ---- */

struct plan {
    struct ddp_reducer_options options;
    uint64_t first_buckets, later_buckets; /* 0: depends on the order */
    bool sums;
};

static const size_t tiny_limits[] = {1, 64};
static const size_t one_limit[] = {2000};

static const struct plan plans[PLANS] = {
    {{.size = 0}, 2, 0, false},
    {{.as_views = 1}, 2, 0, false},
    {{.average = DDP_REDUCER_AVERAGE_AFTER}, 2, 0, false},
    {{.average = DDP_REDUCER_AVERAGE_AFTER, .predivide = 2}, 2, 0, false},
    {{.average = DDP_REDUCER_SUM}, 2, 0, true},
    {{.delay_all_reduce = 1}, 2, 2, false},
    {{.find_unused = 1}, 3, 3, false},
    {{.find_unused = 1, .as_views = 1, .bucket_bytes = tiny_limits, .nbucket_bytes = 2},
     0,
     0,
     false},
    {{.static_graph = 1}, 2, 0, false},
    {{.bucket_bytes = tiny_limits, .nbucket_bytes = 2}, 2, 0, false},
    {{.bucket_bytes = one_limit, .nbucket_bytes = 1, .as_views = 1}, 2, 0, false},
    {{.message_size = 5000}, 2, 0, false},
    {{.no_progress_thread = 1, .no_broadcast = 1}, 2, 0, false},
};

static void average(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const struct plan *plan = &plans[world->stage];
    struct ddp_reducer_options options = plan->options;
    struct model model;
    ddp_reducer *reducer = create(comm, &model, &options);
    double factor = plan->sums ? 1 : 1.0 / world->nranks;
    for (size_t step = 0; step < STEPS; step++) {
        run_step(reducer, &model, rank, step);
        check_gradients(&model, world->nranks, step, factor);
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
    struct ddp_reducer_options options = {.bucket_bytes = one_limit, .nbucket_bytes = 1};
    struct model model;
    ddp_reducer *reducer = create(comm, &model, &options);
    size_t order[PARAMETERS], at = 0;
    run_step(reducer, &model, rank, 0);
    run_step(reducer, &model, rank, 1);
    shuffle(order, 0, 0);
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
    struct model *model;
    uint32_t rank;
    size_t step, first;
};

static void *mark_share(void *argument)
{
    struct marker *marker = argument;
    for (size_t p = marker->first; p < PARAMETERS; p += THREADS) {
        fill(marker->model, marker->rank, marker->step, p);
        CHECK_OK(ddp_reducer_ready(marker->reducer, p, NULL, err));
    }
    return NULL;
}

static void mark_in_threads(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.bucket_bytes = tiny_limits, .nbucket_bytes = 2};
    struct model model;
    struct marker markers[THREADS];
    ddp_reducer *reducer = create(comm, &model, &options);
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
        check_gradients(&model, world->nranks, step, 1.0 / world->nranks);
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
    enum { RACES = 30 };
    struct ddp_reducer_options options = {.bucket_bytes = tiny_limits, .nbucket_bytes = 2};
    struct model model;
    struct marker marker = {.reducer = create(comm, &model, &options)};
    for (size_t step = 0; step < RACES; step++) {
        struct ddp_error error;
        ddp_status status;
        CHECK_OK(ddp_reducer_begin(marker.reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++)
            fill(&model, rank, step, p);
        for (size_t p = 1; p < PARAMETERS; p++)
            CHECK_OK(ddp_reducer_ready(marker.reducer, p, NULL, err));
        CHECK(pthread_create(&marker.thread, NULL, mark_twice, &marker) == 0);
        while ((status = ddp_reducer_finish(marker.reducer, &error)) == DDP_E_INVALID)
            CHECK(strstr(error.msg, ": 1 of 11 gradients are not ready: conv.weight") != NULL);
        CHECK(status == DDP_OK);
        pthread_join(marker.thread, NULL);
        check_gradients(&model, world->nranks, step, 1.0 / world->nranks);
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
    struct model model;
    ddp_reducer *reducer = create(comm, &model, &options);
    for (size_t step = 0; step < 6; step++) {
        bool sync = step % 3 == 2;
        CHECK_OK(ddp_reducer_set_sync(reducer, sync, err));
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++) {
            for (size_t i = 0; i < counts[p]; i++) {
                double before = step % 3 == 0 ? 0 : read_value(model.gradient[p], p, i);
                write_value(model.gradient[p], p, i, before + value_of(rank, step, p, i));
            }
            CHECK_OK(ddp_reducer_ready(reducer, p, NULL, err));
        }
        CHECK_OK(ddp_reducer_finish(reducer, err));
        for (size_t p = 0; sync && p < PARAMETERS; p++)
            for (size_t i = 0; i < counts[p]; i++) {
                double sum = 0;
                for (size_t one = step - 2; one <= step; one++)
                    sum += sum_of(world->nranks, one, p, i);
                check_value(read_value(model.gradient[p], p, i), sum / world->nranks);
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
    struct model model;
    double before[PARAMETERS];
    ddp_reducer *reducer = create(comm, &model, &options);
    for (size_t p = 0; p < PARAMETERS; p++)
        write_value(model.gradient[p], p, 0, before[p] = 77);
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t p = 0; p < PARAMETERS; p++)
            if (uses(rank, step, p)) {
                fill(&model, rank, step, p);
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
                    sum += value_of(other, step, p, 0);
                }
            before[p] = used ? sum / world->nranks : before[p];
            check_value(read_value(model.gradient[p], p, 0), before[p]);
        }
    }
    CHECK(read_value(model.gradient[3], 3, 0) == 77);
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
    struct model model;
    struct ddp_error error;
    ddp_reducer *reducer = create(comm, &model, &options);
    write_value(model.gradient[6], 6, 0, 5);
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        for (size_t p = PARAMETERS; p-- > 0;)
            for (uint32_t mark = 0; mark < marks_of(rank, p); mark++) {
                fill(&model, rank, step, p);
                CHECK_OK(ddp_reducer_ready(reducer, p, NULL, err));
            }
        if (step == 2) {
            CHECK(ddp_reducer_ready(reducer, 2, NULL, &error) == DDP_E_INVALID);
            CHECK(strstr(error.msg, "fc.weight is marked 3 times, but was 2 times") != NULL);
        }
        CHECK_OK(ddp_reducer_finish(reducer, err));
        check_value(read_value(model.gradient[2], 2, 0), sum_of(2, step, 2, 0) / 2);
        check_value(read_value(model.gradient[4], 4, 1), value_of(1, step, 4, 1) / 2);
        CHECK(read_value(model.gradient[6], 6, 0) == 5);
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
            write_value(memory, p, k, read_value(memory, p, k) / 2);
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
    struct ddp_reducer_options options = {
        .hook = &hook, .bucket_bytes = one_limit, .nbucket_bytes = 1, .as_views = world->stage};
    struct model model;
    ddp_reducer *reducer = create(comm, &model, &options);
    for (size_t step = 0; step < STEPS; step++) {
        run_step(reducer, &model, rank, step);
        check_gradients(&model, 2, step, 0.5);
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
                                          .bucket_bytes = tiny_limits,
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
    struct model model;
    ddp_reducer *reducer = create(comm, &model, &options);
    CHECK(running == 0);
    for (size_t epoch = 0; epoch < 2; epoch++) {
        for (size_t step = 0; step < steps_of(rank); step++) {
            run_step(reducer, &model, rank, step);
            double sum = 0;
            uint32_t active = 0;
            for (uint32_t other = 0; other < world->nranks; other++)
                if (step < steps_of(other)) {
                    sum += value_of(other, step, 5, 9);
                    active++;
                }
            check_value(read_value(model.gradient[5], 5, 9),
                        sum / (world->stage ? active : world->nranks));
        }
        write_value(model.data[0], 0, 0, 100.0 + rank);
        running = 50.0F + (float)rank;
        uint32_t last = 99;
        CHECK_OK(ddp_reducer_join(reducer, &last, err));
        CHECK(last == 1 && running == 51);
        CHECK(read_value(model.data[0], 0, 0) == 101);
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
    {{.nparameters = 1, .message_size = 3, .bucket_bytes = one_limit, .nbucket_bytes = 1},
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
    struct model model;
    struct ddp_error error;
    ddp_reducer *reducer = create(comm, &model, &options);
    CHECK(ddp_reducer_ready(reducer, 0, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "no step has begun") != NULL);
    CHECK(ddp_reducer_finish(reducer, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_join(reducer, NULL, &error) == DDP_E_INVALID);
    run_step(reducer, &model, rank, 0);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    CHECK(ddp_reducer_begin(reducer, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_set_sync(reducer, 0, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_skip(reducer, 0, &error) == DDP_E_INVALID);
    CHECK(ddp_reducer_ready(reducer, PARAMETERS, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "there is no parameter 11, only 0 to 10") != NULL);
    for (size_t p = 0; p < PARAMETERS; p++) {
        fill(&model, rank, 1, p);
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
    check_gradients(&model, world->nranks, 1, 1.0 / world->nranks);
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

/* The victim stops before it has marked all gradients, so that reductions of others are under way.
 */
static void die_in_step(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_reducer_options options = {.bucket_bytes = tiny_limits, .nbucket_bytes = 2};
    struct model model;
    struct ddp_error error = {0};
    ddp_status status = DDP_OK;
    ddp_reducer *reducer = create(comm, &model, &options);
    run_step(reducer, &model, rank, 0);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    for (size_t p = 0; p < PARAMETERS && status == DDP_OK; p++) {
        if (rank == VICTIM && p == world->stage) {
            world_step(world, rank);
            for (;;)
                pause();
        }
        fill(&model, rank, 1, p);
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

/* ---- traces ---- */

static void write_trace(struct world *world, uint32_t rank, ddp_comm *comm)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "reducer_trace.%d", (int)getpid());
    struct ddp_reducer_options options = {.trace = path};
    struct model model;
    ddp_reducer *reducer = create(comm, &model, &options);
    for (size_t step = 0; step < STEPS; step++)
        run_step(reducer, &model, rank, step);
    ddp_reducer_destroy(reducer);
    size_t slices = 0, ends = 0;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && strcmp(line, "[\n") == 0);
    while (fgets(line, sizeof line, file) != NULL) {
        slices += strstr(line, "\"ph\": \"X\"") != NULL;
        ends += strcmp(line, "]\n") == 0;
    }
    fclose(file);
    unlink(path);
    CHECK(slices >= 2 * STEPS + 4 && ends == 1);
    CHECK(world->nranks == 1);
}

START_TEST(a_trace_has_every_step)
{
    struct world world = {.nranks = 1, .name = "trace"};
    world_open(&world);
    world_run(&world, write_trace);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reducer");
    TCase *tests = tcase_create("reducer");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, averages_of_two_ranks, 0, PLANS);
    tcase_add_loop_test(tests, averages_of_four_ranks_between_machines, 0, PLANS);
    tcase_add_test(tests, averages_of_one_and_three_ranks);
    tcase_add_test(tests, buckets_follow_the_order_of_rank_0);
    tcase_add_test(tests, gradients_of_several_threads);
    tcase_add_test(tests, a_mark_that_races_the_end_of_a_step_counts_or_is_refused);
    tcase_add_loop_test(tests, gradients_add_up_without_synchronisation, 0, 2);
    tcase_add_loop_test(tests, a_parameter_that_no_rank_uses_keeps_its_gradient, 0, 2);
    tcase_add_loop_test(tests, a_static_graph_repeats_its_first_step, 0, 2);
    tcase_add_loop_test(tests, a_hook_reduces_in_stages, 0, 2);
    tcase_add_loop_test(tests, gradients_are_reduced_in_another_type, 0,
                        (int)(sizeof compressions / sizeof *compressions));
    tcase_add_test(tests, power_sgd_keeps_matrices_of_its_rank);
    tcase_add_loop_test(tests, inf_and_nan_are_told_to_all_ranks, 0, 4);
    tcase_add_loop_test(tests, ranks_join_when_they_run_out_of_data, 0, 2);
    tcase_add_test(tests, options_that_make_no_sense_are_refused);
    tcase_add_test(tests, mistakes_in_a_step_have_no_effect);
    tcase_add_test(tests, ranks_with_other_parameters_are_named);
    tcase_add_loop_test(tests, a_death_in_a_step_is_named, 0, 3);
    tcase_add_test(tests, a_trace_has_every_step);
    suite_add_tcase(suite, tests);
    return suite;
}
