/*
 * test_device_reducer.c - gradients in memory of a GPU: with each option the same steps as with
 * gradients in host memory give the same bits, as lists and as views in memory of the program; the
 * order of streams, mistakes, and deaths.
 */
#include "check_main.h"
#include "rig.h"

#include <ddprun/ddp_hooks.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { PARAMETERS = 6, STEPS = 3 };

static const size_t counts[PARAMETERS] = {1000, 3, 70001, 64, 1, 2500};
static const size_t rows[PARAMETERS] = {20, 0, 0, 8, 0, 50}; /* of matrices; for PowerSGD */

/* What a step uses of the parameters. */
enum usage { ALL, SOME, GRAPH };

static const struct plan {
    struct ddp_reducer_options options;
    enum usage usage;
    struct ddp_compression compression; /* with dtype 0, which is float32: none */
    uint32_t power_rank;                /* 0: no PowerSGD; it begins with the second step */
} plans[] = {
    {.options = {.average = DDP_REDUCER_AVERAGE_BEFORE}},
    {.options = {.average = DDP_REDUCER_AVERAGE_AFTER}},
    {.options = {.average = DDP_REDUCER_SUM}},
    {.options = {.average = DDP_REDUCER_AVERAGE_AFTER, .predivide = 3}},
    {.options = {.average = DDP_REDUCER_SUM, .predivide = 3}},
    {.options = {.delay_all_reduce = 1}},
    {.options = {.find_unused = 1}, .usage = SOME},
    {.options = {.find_unused = 1, .average = DDP_REDUCER_AVERAGE_AFTER}, .usage = SOME},
    {.options = {.find_unused = 1, .delay_all_reduce = 1}, .usage = SOME},
    {.options = {.static_graph = 1}, .usage = GRAPH},
    {.options = {.static_graph = 1, .find_unused = 1, .average = DDP_REDUCER_AVERAGE_AFTER},
     .usage = GRAPH},
    {.options = {.uneven_inputs = 1}},
    {.options = {.uneven_inputs = 1, .divide_by_active = 1}},
    {.options = {.uneven_inputs = 1, .divide_by_active = 1, .average = DDP_REDUCER_AVERAGE_AFTER}},
    {.options = {.uneven_inputs = 1, .find_unused = 1, .average = DDP_REDUCER_AVERAGE_AFTER},
     .usage = SOME},
    {.compression = {.dtype = DDP_BFLOAT16, .average = DDP_REDUCER_AVERAGE_AFTER}},
    {.compression = {.dtype = DDP_FLOAT64, .average = DDP_REDUCER_SUM}},
    {.options = {.find_unused = 1}, .usage = SOME, .compression = {.dtype = DDP_FLOAT16}},
    {.options = {.uneven_inputs = 1, .divide_by_active = 1},
     .compression = {.dtype = DDP_BFLOAT16, .average = DDP_REDUCER_AVERAGE_AFTER, .predivide = 3}},
    {.power_rank = 2},
    {.options = {.uneven_inputs = 1, .divide_by_active = 1}, .power_rank = 3},
};

enum { PLANS = sizeof plans / sizeof *plans };

/* How often a rank marks a gradient in a step. Of SOME, parameter 3 is not used at all, parameter 1
 * by rank 0 in every other step. Of GRAPH, parameter 2 is used twice, parameter 4 by rank 0
 * only. */
static unsigned marks_of(enum usage usage, uint32_t rank, size_t step, size_t p)
{
    if (usage == SOME)
        return p != 3 && (p != 1 || (rank == 0 && step % 2 == 0)) && (p != 5 || rank != 0);
    if (usage == GRAPH)
        return p == 2 ? 2 : p == 3 ? 0 : p == 4 ? rank == 0 : 1;
    return 1;
}

/* A reducer, and its gradients in one of the two memories. */
struct side {
    struct ddp_parameter parameters[PARAMETERS];
    struct ddp_reducer_options options;
    struct ddp_compression compression;
    struct ddp_comm_hook hook;
    ddp_power_sgd *power_sgd;
    ddp_reducer *reducer;
    void *stream;
};

static void open_side(struct side *side, ddp_comm *comm, const struct plan *plan, void *views,
                      void *stream)
{
    static const size_t limits[] = {3000, 100000};
    side->options = plan->options;
    side->options.size = sizeof side->options;
    side->options.parameters = side->parameters;
    side->options.nparameters = PARAMETERS;
    side->options.bucket_bytes = limits;
    side->options.nbucket_bytes = 2;
    side->options.as_views = views != NULL;
    side->options.view_memory = views;
    side->options.on_device = stream != NULL;
    side->stream = stream;
    side->compression = plan->compression;
    side->hook = ddp_compression_hook(&side->compression);
    side->options.hook = side->compression.dtype != DDP_FLOAT32 ? &side->hook : NULL;
    if (plan->power_rank > 0) {
        const struct ddp_power_sgd_options rules = {
            .size = sizeof rules, .rank = plan->power_rank, .start_step = 1};
        CHECK_OK(ddp_power_sgd_create(&rules, &side->power_sgd, err));
        side->hook = ddp_power_sgd_hook(side->power_sgd);
        side->options.hook = &side->hook;
    }
    CHECK_OK(ddp_reducer_create(comm, &side->options, &side->reducer, err));
}

static void mark_all(const struct side *side, enum usage usage, uint32_t rank, size_t step)
{
    for (size_t p = PARAMETERS; p-- > 0;) {
        unsigned marks = marks_of(usage, rank, step, p);
        for (unsigned mark = 0; mark < marks; mark++)
            CHECK_OK(ddp_reducer_ready(side->reducer, p, side->stream, err));
        if (marks == 0 && usage == SOME && p % 2 == step % 2)
            CHECK_OK(ddp_reducer_skip(side->reducer, p, err));
    }
}

static void run_step(const struct side *side, const struct plan *plan, uint32_t rank, size_t step)
{
    CHECK_OK(ddp_reducer_begin(side->reducer, err));
    mark_all(side, plan->usage, rank, step);
    CHECK_OK(ddp_reducer_finish(side->reducer, err));
}

/* With uneven inputs ranks have different numbers of steps. */
static size_t steps_of(const struct plan *plan, uint32_t rank)
{
    return plan->options.uneven_inputs ? STEPS - 1 + rank % 2 : STEPS;
}

/* Returns the rank that joined last. */
static uint32_t run_side(const struct side *side, const struct plan *plan, uint32_t rank)
{
    uint32_t last = 0;
    for (size_t step = 0; step < steps_of(plan, rank); step++)
        run_step(side, plan, rank, step);
    if (plan->options.uneven_inputs)
        CHECK_OK(ddp_reducer_join(side->reducer, &last, err));
    return last;
}

/* Products of matrices with random bits would all be NaN. */
static void make_small(struct rig *rig, struct twin *twin)
{
    float *values = (float *)(void *)twin->host;
    for (size_t i = 0; i < twin->len / sizeof *values; i++)
        values[i] = (float)(rig_draw(rig) % 2001) / 1000 - 1;
    if (twin->len > 0)
        rig_upload(rig, twin);
}

/* Each step reduces the results of the one before. */
static void compare_steps(struct rig *rig, const struct plan *plan, bool views)
{
    struct side device = {.reducer = NULL}, host = {.reducer = NULL};
    struct twin block, gradients[PARAMETERS];
    for (size_t i = 0; i < PARAMETERS; i++) {
        device.parameters[i] = host.parameters[i] =
            (struct ddp_parameter){.count = counts[i], .dtype = DDP_FLOAT32, .rows = rows[i]};
        gradients[i] = rig_input(rig, views ? 0 : counts[i], DDP_FLOAT32);
        if (plan->power_rank > 0)
            make_small(rig, &gradients[i]);
        device.parameters[i].gradient = views ? NULL : twin_device(&gradients[i]);
        host.parameters[i].gradient = views ? NULL : gradients[i].host;
    }
    device.options =
        (struct ddp_reducer_options){.parameters = device.parameters, .nparameters = PARAMETERS};
    size_t bytes = ddp_reducer_view_bytes(&device.options);
    CHECK(bytes >= 73569 * 4 && bytes < 73569 * 4 + 128);
    block = rig_input(rig, views ? bytes / 4 : 0, DDP_FLOAT32);
    if (plan->power_rank > 0)
        make_small(rig, &block);
    open_side(&device, rig->device, plan, views ? twin_device(&block) : NULL, rig->stream);
    open_side(&host, rig->host, plan, views ? block.host : NULL, NULL);
    CU(rig->cuda.stream_synchronize(rig->stream)); /* a rank that joins passes no stream */
    CHECK(run_side(&device, plan, rig->rank) == run_side(&host, plan, rig->rank));
    ddp_reducer_destroy(device.reducer);
    ddp_reducer_destroy(host.reducer);
    ddp_power_sgd_destroy(device.power_sgd);
    ddp_power_sgd_destroy(host.power_sgd);
    rig_compare(rig, &block, DDP_FLOAT32);
    for (size_t i = 0; i < PARAMETERS; i++)
        rig_compare(rig, &gradients[i], DDP_FLOAT32);
}

static void one_plan(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    compare_steps(&rig, &plans[world->stage], false);
    size_t free_bytes = rig_free_memory(&rig);
    compare_steps(&rig, &plans[world->stage], true);
    rig_synchronize(&rig);
    /* A GPU's driver counts what other programs have, too. */
    CHECK(world->nranks > 1 || !rig_driver_is_host() || rig_free_memory(&rig) == free_bytes);
    rig_close(&rig);
}

/* _i: the plan, and the number of ranks. */
START_TEST(steps_on_the_device_give_the_bits_of_the_host)
{
    struct world world = {.nranks = (uint32_t)_i / PLANS + 1,
                          .stage = (uint32_t)_i % PLANS,
                          .tcp = _i / PLANS == 2,
                          .algorithm = _i / PLANS == 2 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO,
                          .name = "device-reducer"};
    world_open(&world);
    world_run(&world, one_plan);
    world_close(&world);
}
END_TEST

/* ---- types: some are no kernel's ---- */

static void other_elements(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const ddp_dtype dtypes[] = {DDP_FLOAT64,     DDP_FLOAT16,   DDP_BFLOAT16,
                                       DDP_FLOAT8_E5M2, DDP_COMPLEX64, DDP_COMPLEX128};
    enum { COUNT = 3001 };
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct twin twin = rig_input(&rig, COUNT, dtypes[i]);
        struct ddp_parameter parameter = {
            .gradient = twin_device(&twin), .count = COUNT, .dtype = dtypes[i]};
        struct ddp_parameter second = {.gradient = twin.host, .count = COUNT, .dtype = dtypes[i]};
        struct ddp_reducer_options options = {.size = sizeof options,
                                              .parameters = &parameter,
                                              .nparameters = 1,
                                              .average = DDP_REDUCER_AVERAGE_AFTER,
                                              .predivide = 5,
                                              .on_device = 1};
        ddp_reducer *device, *host;
        CHECK_OK(ddp_reducer_create(rig.device, &options, &device, err));
        options.on_device = 0;
        options.parameters = &second;
        CHECK_OK(ddp_reducer_create(rig.host, &options, &host, err));
        for (size_t step = 0; step < STEPS; step++) {
            CHECK_OK(ddp_reducer_begin(device, err));
            CHECK_OK(ddp_reducer_ready(device, 0, rig.stream, err));
            CHECK_OK(ddp_reducer_finish(device, err));
            CHECK_OK(ddp_reducer_begin(host, err));
            CHECK_OK(ddp_reducer_ready(host, 0, NULL, err));
            CHECK_OK(ddp_reducer_finish(host, err));
        }
        ddp_reducer_destroy(device);
        ddp_reducer_destroy(host);
        rig_compare(&rig, &twin, dtypes[i]);
    }
    rig_synchronize(&rig);
    rig_close(&rig);
}

START_TEST(every_type_is_multiplied)
{
    struct world world = {.nranks = 2, .name = "device-types"};
    world_open(&world);
    world_run(&world, other_elements);
    world_close(&world);
}
END_TEST

/* ---- hooks ---- */

enum { HOOKED = 5000 };

/* What a hook of a program has: copies of gradients on the device. */
struct copier {
    struct rig *rig;
    struct world *world;
    unsigned stages, copies, freed;
    bool stops; /* in stage 1 */
};

static void stop_here(struct world *world, uint32_t rank)
{
    world_step(world, rank);
    for (;;)
        pause();
}

static void copy_gradient(const struct copier *copier, const struct ddp_bucket *bucket, void *to,
                          const void *from)
{
    CU(copier->rig->cuda.memcpy_async((uintptr_t)to, (uintptr_t)from, HOOKED * sizeof(float),
                                      bucket->stream));
}

/* Sums a copy of the only gradient, and copies the sum back. */
static ddp_status reduce_copy(void *ctx, struct ddp_bucket *bucket, uint32_t stage,
                              struct ddp_operation *operation, int *ret_more, struct ddp_error *err)
{
    struct copier *copier = ctx;
    void *gradient = bucket->gradients[0].recv;
    (void)err;
    CHECK(bucket->on_device && bucket->stream == copier->rig->stream && bucket->ngradients == 1);
    copier->stages++;
    if (stage == 1) {
        if (copier->stops)
            stop_here(copier->world, copier->rig->rank);
        copy_gradient(copier, bucket, gradient, bucket->state);
        return DDP_OK;
    }
    CHECK(operation->stream == bucket->stream);
    if (bucket->state == NULL) {
        bucket->state = rig_alloc(copier->rig, HOOKED * sizeof(float));
        copier->copies++;
    }
    copy_gradient(copier, bucket, bucket->state, gradient);
    operation->kind = DDP_KIND_ALL_REDUCE;
    operation->dtype = bucket->dtype;
    operation->op = DDP_SUM;
    operation->send = operation->recv = bucket->state;
    operation->count = bucket->count;
    *ret_more = 1;
    return DDP_OK;
}

static void free_copy(void *ctx, struct ddp_bucket *bucket)
{
    struct copier *copier = ctx;
    copier->freed += bucket->state != NULL;
    if (bucket->state != NULL)
        CU(copier->rig->cuda.mem_free((uintptr_t)bucket->state));
}

static ddp_status hooked_step(struct rig *rig, ddp_reducer *reducer, void *gradient, size_t step,
                              struct ddp_error *error)
{
    ddp_status status = ddp_reducer_begin(reducer, error);
    if (status != DDP_OK)
        return status;
    CU(rig->cuda.memset_d8_async((uintptr_t)gradient, (unsigned char)(0x3c + step),
                                 HOOKED * sizeof(float), rig->stream));
    status = ddp_reducer_ready(reducer, 0, rig->stream, error);
    return status == DDP_OK ? ddp_reducer_finish(reducer, error) : status;
}

static ddp_status open_hooked(ddp_comm *comm, void *gradient, const struct ddp_comm_hook *hook,
                              ddp_reducer **ret_reducer)
{
    const struct ddp_parameter parameter = {
        .gradient = gradient, .count = HOOKED, .rows = 50, .dtype = DDP_FLOAT32};
    const struct ddp_reducer_options options = {.size = sizeof options,
                                                .parameters = &parameter,
                                                .nparameters = 1,
                                                .hook = hook,
                                                .on_device = 1};
    return ddp_reducer_create(comm, &options, ret_reducer, NULL);
}

static void use_own_hook(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct copier copier = {.rig = &rig, .world = world};
    const struct ddp_comm_hook hook = {.stage = reduce_copy, .forget = free_copy, .ctx = &copier};
    float results[HOOKED], value;
    ddp_reducer *reducer;
    rig_use(&rig, (int)rank, comm, NULL);
    void *gradient = rig_alloc(&rig, sizeof results);
    CHECK(open_hooked(comm, gradient, &hook, &reducer) == DDP_OK);
    for (size_t step = 0; step < STEPS; step++) {
        CHECK(hooked_step(&rig, reducer, gradient, step, NULL) == DDP_OK);
        memset(&value, (int)(0x3c + step), sizeof value);
        /* Another stream than the hook's: what the hook has enqueued is done. */
        CU(rig.cuda.memcpy_dtoh_async(results, (uintptr_t)gradient, sizeof results, NULL));
        CU(rig.cuda.stream_synchronize(NULL));
        for (size_t i = 0; i < HOOKED; i++)
            CHECK(results[i] == (float)world->nranks * value);
    }
    CHECK(copier.stages == 2 * STEPS && copier.copies == 2); /* buckets are made anew once */
    ddp_reducer_destroy(reducer);
    CHECK(copier.freed == copier.copies);
    rig_synchronize(&rig);
}

START_TEST(a_hook_reduces_in_stages)
{
    struct world world = {.nranks = (uint32_t)_i, .name = "device-hook"};
    world_open(&world);
    world_run(&world, use_own_hook);
    world_close(&world);
}
END_TEST

/* ---- inf and NaN ---- */

/* In step 1 one rank has a NaN; in a list, and as a view. */
static void check_steps(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { COUNT = 3000 };
    struct rig rig;
    const float bad = NAN;
    const size_t len = COUNT * sizeof bad;
    rig_use(&rig, (int)rank, comm, NULL);
    ddpi_cu_deviceptr gradients = (uintptr_t)rig_alloc(&rig, 2 * len);
    const struct ddp_parameter parameters[2] = {
        {.gradient = world->stage ? NULL : (void *)(uintptr_t)gradients,
         .count = COUNT,
         .dtype = DDP_FLOAT32},
        {.gradient = world->stage ? NULL : (void *)(uintptr_t)(gradients + len),
         .count = COUNT,
         .dtype = DDP_FLOAT32}};
    struct ddp_reducer_options options = {.size = sizeof options,
                                          .parameters = parameters,
                                          .nparameters = 2,
                                          .average = DDP_REDUCER_AVERAGE_AFTER,
                                          .as_views = world->stage,
                                          .view_memory =
                                              world->stage ? (void *)(uintptr_t)gradients : NULL,
                                          .on_device = 1,
                                          .check_finite = 1};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(reducer, err));
        CU(rig.cuda.memset_d8_async(gradients, 0x3f, 2 * len, rig.stream));
        if (step == 1 && rank == 1)
            CU(rig.cuda.memcpy_htod_async(gradients + len + 28, &bad, sizeof bad, rig.stream));
        CHECK_OK(ddp_reducer_ready(reducer, 1, rig.stream, err));
        CHECK_OK(ddp_reducer_ready(reducer, 0, rig.stream, err));
        CHECK_OK(ddp_reducer_finish(reducer, err));
        CHECK(ddp_reducer_non_finite(reducer) == (step == 1));
    }
    ddp_reducer_destroy(reducer);
    rig_synchronize(&rig);
}

START_TEST(inf_and_nan_are_told_to_all_ranks)
{
    struct world world = {.nranks = 3, .stage = (uint32_t)_i, .name = "device-finite"};
    world_open(&world);
    world_run(&world, check_steps);
    world_close(&world);
}
END_TEST

/* ---- streams ---- */

enum { WORDS_BYTES = 4096 };

/* A stream that goes on when the host has set the word. */
static _Atomic uint32_t *hold(struct rig *rig, ddpi_cu_stream stream)
{
    void *word;
    ddpi_cu_deviceptr address;
    CU(rig->cuda.mem_host_alloc(&word, WORDS_BYTES, DDPI_CU_MEMHOSTALLOC_DEVICEMAP));
    memset(word, 0, WORDS_BYTES);
    CU(rig->cuda.mem_host_get_device_pointer(&address, word, 0));
    CU(rig->cuda.stream_wait_value32(stream, address, 1, DDPI_CU_STREAM_WAIT_VALUE_EQ));
    return word;
}

enum { LATE = 1000 };

/* Each byte of gradient @p, on all ranks. */
static unsigned char byte_of(size_t step, size_t p)
{
    return (unsigned char)(0x3c + 2 * step + p);
}

static void check_sums(struct rig *rig, void *gradient, size_t step, size_t p)
{
    float value, results[LATE];
    memset(&value, byte_of(step, p), sizeof value);
    CU(rig->cuda.memcpy_dtoh_async(results, (uintptr_t)gradient, sizeof results, rig->stream));
    CU(rig->cuda.stream_synchronize(rig->stream));
    for (size_t i = 0; i < LATE; i++)
        CHECK(results[i] == 2 * value);
}

/* In the first step both gradients are in one bucket. */
static void learn_order(struct rig *rig, ddp_reducer *reducer, void *gradients[2])
{
    CHECK_OK(ddp_reducer_begin(reducer, err));
    for (size_t p = 2; p-- > 0;) {
        CU(rig->cuda.memset_d8_async((uintptr_t)gradients[p], byte_of(0, p), LATE * sizeof(float),
                                     rig->stream));
        CHECK_OK(ddp_reducer_ready(reducer, p, rig->stream, err));
    }
    CHECK_OK(ddp_reducer_finish(reducer, err));
    for (size_t p = 0; p < 2; p++)
        check_sums(rig, gradients[p], 0, p);
}

/* Gradients in buckets of their own, of which the one that is marked first is computed late, by
 * another stream: its bucket has its turn when the other one is marked. */
static void two_streams(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t smallest = 1;
    struct rig rig;
    struct ddp_parameter parameters[2];
    void *gradients[2];
    ddpi_cu_stream late;
    rig_use(&rig, (int)rank, comm, NULL);
    CU(rig.cuda.stream_create(&late, DDPI_CU_STREAM_NON_BLOCKING));
    for (size_t p = 0; p < 2; p++) {
        gradients[p] = rig_alloc(&rig, LATE * sizeof(float));
        parameters[p] =
            (struct ddp_parameter){.gradient = gradients[p], .count = LATE, .dtype = DDP_FLOAT32};
    }
    struct ddp_reducer_options options = {.size = sizeof options,
                                          .parameters = parameters,
                                          .nparameters = 2,
                                          .bucket_bytes = &smallest,
                                          .nbucket_bytes = 1,
                                          .average = DDP_REDUCER_SUM,
                                          .on_device = 1};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    learn_order(&rig, reducer, gradients);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    _Atomic uint32_t *word = hold(&rig, late);
    for (size_t p = 0; p < 2; p++) {
        ddpi_cu_stream stream = p == 0 ? late : rig.stream;
        CU(rig.cuda.memset_d8_async((uintptr_t)gradients[p], byte_of(1, p), LATE * sizeof(float),
                                    stream));
        CHECK_OK(ddp_reducer_ready(reducer, p, stream, err));
    }
    CU(rig.cuda.stream_synchronize(rig.stream)); /* waits for the reduction of one bucket only */
    atomic_store(word, 1);
    CHECK_OK(ddp_reducer_finish(reducer, err));
    for (size_t p = 0; p < 2; p++)
        check_sums(&rig, gradients[p], 1, p);
    ddp_reducer_destroy(reducer);
    CU(rig.cuda.stream_synchronize(late));
    CU(rig.cuda.mem_free_host((void *)word));
    CU(rig.cuda.stream_destroy(late));
    for (size_t p = 0; p < 2; p++)
        rig_free(&rig, gradients[p]);
    CHECK(world->nranks == 2);
}

START_TEST(a_bucket_waits_for_the_stream_of_its_own_gradients)
{
    struct world world = {.nranks = 2, .name = "device-order"};
    world_open(&world);
    world_run(&world, two_streams);
    world_close(&world);
}
END_TEST

/* ---- mistakes ---- */

static void refuse_options(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float gradient;
    struct rig rig;
    const struct ddp_parameter parameter = {.gradient = &gradient, .count = 1};
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = &parameter, .nparameters = 1, .on_device = 1};
    struct ddp_error error;
    ddp_reducer *reducer;
    rig_use(&rig, (int)rank, comm, NULL);
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "the gradient of parameter 0 at ") != NULL &&
          strstr(error.msg, " is host memory: set on_device to 0") != NULL);
    options.as_views = 1;
    CHECK(ddp_reducer_create(comm, &options, &reducer, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "needs view_memory") != NULL);
    options.as_views = options.on_device = 0;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    CHECK_OK(ddp_reducer_begin(reducer, err));
    CHECK(ddp_reducer_ready(reducer, 0, rig.stream, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "gradients in host memory have no stream") != NULL);
    CHECK_OK(ddp_reducer_ready(reducer, 0, NULL, err));
    CHECK_OK(ddp_reducer_finish(reducer, err));
    ddp_reducer_destroy(reducer);
    rig_close(&rig);
    CHECK(world->nranks == 1);
}

START_TEST(memory_of_the_other_kind_is_refused)
{
    struct world world = {.nranks = 1, .name = "device-refusals"};
    world_open(&world);
    world_run(&world, refuse_options);
    world_close(&world);
}
END_TEST

/* Without find_unused a gradient that is missing is named, and may still come. */
static void leave_one_out(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct ddp_error error;
    struct side device = {.reducer = NULL};
    struct twin gradients[PARAMETERS];
    rig_open(&rig, world, rank, comm);
    for (size_t i = 0; i < PARAMETERS; i++) {
        gradients[i] = rig_input(&rig, counts[i], DDP_FLOAT32);
        device.parameters[i] = (struct ddp_parameter){
            .gradient = twin_device(&gradients[i]), .count = counts[i], .dtype = DDP_FLOAT32};
    }
    open_side(&device, comm, &plans[0], NULL, rig.stream);
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(ddp_reducer_begin(device.reducer, err));
        for (size_t i = PARAMETERS; i-- > 0;)
            if (i != step)
                CHECK_OK(ddp_reducer_ready(device.reducer, i, rig.stream, err));
        CHECK(ddp_reducer_skip(device.reducer, step, &error) == DDP_E_INVALID);
        CHECK(ddp_reducer_finish(device.reducer, &error) == DDP_E_INVALID);
        CHECK(strstr(error.msg, "1 of 6 gradients are not ready: parameter ") != NULL);
        CHECK_OK(ddp_reducer_ready(device.reducer, step, rig.stream, err));
        CHECK_OK(ddp_reducer_finish(device.reducer, err));
    }
    ddp_reducer_destroy(device.reducer);
    rig_synchronize(&rig);
    for (size_t i = 0; i < PARAMETERS; i++)
        twin_free(&rig, &gradients[i]);
    rig_close(&rig);
    CHECK(world->nranks == 2);
}

START_TEST(a_missing_gradient_is_named)
{
    struct world world = {.nranks = 2, .name = "device-missing"};
    world_open(&world);
    world_run(&world, leave_one_out);
    world_close(&world);
}
END_TEST

/* The GPU has no memory for zeros: the step goes on when it has. */
static void run_out_of_memory(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct ddp_error error;
    struct ddp_parameter parameters[2];
    ddp_reducer *reducer;
    rig_use(&rig, (int)rank, comm, NULL);
    for (size_t p = 0; p < 2; p++)
        parameters[p] = (struct ddp_parameter){.gradient = rig_alloc(&rig, HOOKED * sizeof(float)),
                                               .count = HOOKED};
    const struct ddp_reducer_options options = {.size = sizeof options,
                                                .parameters = parameters,
                                                .nparameters = 2,
                                                .find_unused = 1,
                                                .on_device = 1};
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    CHECK_OK(ddp_reducer_begin(reducer, err));
    CHECK_OK(ddp_reducer_ready(reducer, 1, rig.stream, err));
    void *rest = rig_alloc(&rig, rig_free_memory(&rig));
    CHECK(ddp_reducer_skip(reducer, 0, &error) == DDP_E_NOMEM);
    CHECK(strcmp(error.msg, "the GPU has no 20000 bytes of memory left") == 0);
    CHECK(ddp_reducer_finish(reducer, &error) == DDP_E_NOMEM);
    rig_free(&rig, rest);
    CHECK_OK(ddp_reducer_finish(reducer, err));
    ddp_reducer_destroy(reducer);
    rig_synchronize(&rig);
    CHECK(world->nranks == 1);
}

START_TEST(a_step_goes_on_when_there_is_memory_again)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda: a GPU's memory is also that of others");
    setenv("DDP_HOST_CUDA_MEMORY", "256M", 1); /* all of it is written to */
    struct world world = {.nranks = 1, .name = "device-memory"};
    world_open(&world);
    world_run(&world, run_out_of_memory);
    world_close(&world);
}
END_TEST

/* ---- deaths ---- */

enum { VICTIM = 1, POINTS = 4 };

/* Where the victim stops: before a step, in its middle, before it is finished, and as one that has
 * joined. */
static bool stops_at(const struct world *world, uint32_t rank, uint32_t point)
{
    return rank == VICTIM && world->stage == point;
}

static ddp_status step_until_death(struct world *world, uint32_t rank, const struct side *side,
                                   struct ddp_error *error)
{
    if (stops_at(world, rank, 0))
        stop_here(world, rank);
    ddp_status status = ddp_reducer_begin(side->reducer, error);
    for (size_t p = PARAMETERS; p-- > 1 && status == DDP_OK;) {
        if (stops_at(world, rank, 1) && p == 3)
            stop_here(world, rank);
        status = ddp_reducer_ready(side->reducer, p, side->stream, error);
    }
    if (stops_at(world, rank, 2))
        stop_here(world, rank);
    return status == DDP_OK ? ddp_reducer_finish(side->reducer, error) : status;
}

static void die_in_step(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const struct plan plan = {
        .options = {.find_unused = 1, .uneven_inputs = 1, .average = DDP_REDUCER_AVERAGE_AFTER}};
    struct side device = {.reducer = NULL};
    struct ddp_error error = {0};
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    for (size_t i = 0; i < PARAMETERS; i++) {
        struct twin gradient = rig_input(&rig, counts[i], DDP_FLOAT32);
        device.parameters[i] = (struct ddp_parameter){
            .gradient = twin_device(&gradient), .count = counts[i], .dtype = DDP_FLOAT32};
    }
    open_side(&device, comm, &plan, NULL, rig.stream);
    run_step(&device, &plan, rank, 0);
    if (rank == 0 && world->stage == 3) /* the victim dies while rank 0 has no more data */
        world->reports[rank].status = ddp_reducer_join(device.reducer, NULL, &error);
    else
        world->reports[rank].status = stops_at(world, rank, 3)
                                          ? (stop_here(world, rank), DDP_OK)
                                          : step_until_death(world, rank, &device, &error);
    ddp_status status = world->reports[rank].status;
    world_report(world, rank, status, &error);
    CHECK(ddp_reducer_begin(device.reducer, &error) == status);
    ddp_reducer_destroy(device.reducer);
    CU(rig.cuda.stream_synchronize(rig.stream)); /* nothing holds it */
}

/* The victim dies in the second stage of its hook; others learn of it in a stage, or in the first
 * stage of the step after. */
static void die_in_hook(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct copier copier = {.rig = &rig, .world = world};
    const struct ddp_comm_hook hook = {.stage = reduce_copy, .forget = free_copy, .ctx = &copier};
    struct ddp_error error = {0};
    ddp_reducer *reducer;
    rig_use(&rig, (int)rank, comm, NULL);
    void *gradient = rig_alloc(&rig, HOOKED * sizeof(float));
    CHECK(open_hooked(comm, gradient, &hook, &reducer) == DDP_OK);
    CHECK(hooked_step(&rig, reducer, gradient, 0, NULL) == DDP_OK);
    copier.stops = rank == VICTIM;
    ddp_status status = DDP_OK;
    for (size_t step = 1; step < STEPS && status == DDP_OK; step++)
        status = hooked_step(&rig, reducer, gradient, step, &error);
    world_report(world, rank, status, &error);
    ddp_reducer_destroy(reducer);
    CHECK(copier.freed == copier.copies);
    CU(rig.cuda.stream_synchronize(rig.stream)); /* nothing holds it */
}

static void die(struct world *world, uint32_t rank, ddp_comm *comm)
{
    if (world->stage < POINTS)
        die_in_step(world, rank, comm);
    else
        die_in_hook(world, rank, comm);
}

/* _i: the point, or in a hook. */
START_TEST(a_death_in_a_step_is_named)
{
    struct world world = {.nranks = 3, .name = "device-death", .stage = (uint32_t)_i};
    world_open(&world);
    world_start(&world, die);
    world_await_steps(&world, VICTIM, 1);
    world_kill_rank(&world, VICTIM);
    world_await_failures(&world, VICTIM);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *report = &world.reports[rank];
        if (rank == VICTIM)
            continue;
        ck_assert_msg(report->status == DDP_E_PEER_DEAD, "%s", report->error.msg);
        ck_assert_msg(strstr(report->error.msg, _i < POINTS ? "step 1: " : "step ") != NULL &&
                          strstr(report->error.msg, "rank 1") != NULL,
                      "%s", report->error.msg);
    }
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    (void)rig_driver_is_host(); /* tests and their ranks inherit the answer */
    Suite *suite = suite_create("device_reducer");
    TCase *tests = tcase_create("device_reducer");
    add_sample(tests, steps_on_the_device_give_the_bits_of_the_host, 0, 4 * PLANS);
    tcase_add_test(tests, every_type_is_multiplied);
    tcase_add_loop_test(tests, a_hook_reduces_in_stages, 1, 4);
    tcase_add_loop_test(tests, inf_and_nan_are_told_to_all_ranks, 0, 2);
    tcase_add_test(tests, a_bucket_waits_for_the_stream_of_its_own_gradients);
    tcase_add_test(tests, memory_of_the_other_kind_is_refused);
    tcase_add_test(tests, a_missing_gradient_is_named);
    tcase_add_test(tests, a_step_goes_on_when_there_is_memory_again);
    add_sample(tests, a_death_in_a_step_is_named, 0, POINTS + 1);
    suite_add_tcase(suite, tests);
    return suite;
}
