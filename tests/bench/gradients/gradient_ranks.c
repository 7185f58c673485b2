/*
 * gradient_ranks.c - see gradient_ranks.h. Ranks are children of this process (ddp_spawn()); rank 0
 * leaves its figures in memory that both share.
 */
#include "gradient_ranks.h"

#include "error.h"
#include "perf.h"
#include "resnet50.h"

#include <ddprun/ddp_reducer.h>
#include <ddprun/spawn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { JOIN_MS = 600000, BLOCK = 2048, CALIBRATION = 20000, WARMUP = 2, MANY_COUNT = 256 };

/* ---- work that takes processor time, and no memory that others use ---- */

struct work {
    float block[BLOCK];
    double us; /* of one pass over the block */
};

/* Not inlined: each copy would be optimised in its own way, and take another time. */
__attribute__((noinline)) static void work_pass(struct work *work)
{
    for (size_t i = 0; i < BLOCK; i++)
        work->block[i] = work->block[i] * 0.999F + 0.001F;
    __asm__ volatile("" : : "r"(work->block) : "memory");
}

static void work_calibrate(struct work *work)
{
    *work = (struct work){.us = 0};
    double begin = perf_now_us();
    for (size_t i = 0; i < CALIBRATION; i++)
        work_pass(work);
    work->us = (perf_now_us() - begin) / CALIBRATION;
}

/* ---- a model ---- */

struct model {
    ddp_comm *comm;
    ddp_reducer *reducer;
    struct ddp_parameter parameters[MANY_GRADIENTS];
    size_t passes[MANY_GRADIENTS]; /* of work before a gradient is complete */
    size_t count, elements;
    float *memory;
    struct work work;
};

static ddp_status model_join(struct model *model, const size_t *counts, size_t count, bool views,
                             struct ddp_error *err)
{
    struct ddp_reducer_options options = {.size = sizeof options,
                                          .parameters = model->parameters,
                                          .nparameters = count,
                                          .as_views = views};
    model->count = count;
    for (size_t i = 0; i < count; i++)
        model->elements += counts[i];
    model->memory = calloc(model->elements, sizeof *model->memory);
    if (model->memory == NULL)
        return ddpi_error_nomem(err, model->elements * sizeof *model->memory);
    float *at = model->memory;
    for (size_t i = 0; i < count; i++) {
        model->parameters[i] = (struct ddp_parameter){
            .gradient = views ? NULL : at, .count = counts[i], .dtype = DDP_FLOAT32};
        at += counts[i];
    }
    ddp_status status = ddp_comm_init(NULL, &model->comm, err);
    return status == DDP_OK ? ddp_reducer_create(model->comm, &options, &model->reducer, err)
                            : status;
}

static void model_leave(struct model *model)
{
    ddp_reducer_destroy(model->reducer);
    ddp_comm_destroy(model->comm);
    free(model->memory);
    free(model);
}

/* Work in proportion to the sizes of gradients. */
static void model_set_work(struct model *model, uint32_t backward_ms)
{
    work_calibrate(&model->work);
    double passes = backward_ms * 1000.0 / model->work.us;
    for (size_t i = 0; i < model->count; i++)
        model->passes[i] =
            (size_t)(passes * (double)model->parameters[i].count / (double)model->elements);
}

/* ---- steps ---- */

static void compute(struct model *model, size_t gradient)
{
    for (size_t i = 0; i < model->passes[gradient]; i++)
        work_pass(&model->work);
}

static double time_compute(struct model *model)
{
    double begin = perf_now_us();
    for (size_t i = model->count; i-- > 0;)
        compute(model, i);
    return perf_now_us() - begin;
}

/* A step, and without a backward pass how long it took to mark a gradient, on average. */
static ddp_status time_step(struct model *model, bool computes, double *ret_us, double *ret_mark_us,
                            struct ddp_error *err)
{
    double begin = perf_now_us();
    ddp_status status = ddp_reducer_begin(model->reducer, err);
    double begun = perf_now_us();
    for (size_t i = model->count; i-- > 0 && status == DDP_OK;) {
        if (computes)
            compute(model, i);
        status = ddp_reducer_ready(model->reducer, i, NULL, err);
    }
    if (ret_mark_us != NULL)
        *ret_mark_us = (perf_now_us() - begun) / (double)model->count;
    if (status == DDP_OK)
        status = ddp_reducer_finish(model->reducer, err);
    *ret_us = perf_now_us() - begin;
    return status;
}

struct samples {
    struct perf_samples compute, reduce, step, mark;
};

static bool keep(struct samples *samples, double compute_us, double reduce_us, double step_us,
                 double mark_us)
{
    return perf_add(&samples->compute, compute_us) && perf_add(&samples->reduce, reduce_us) &&
           perf_add(&samples->step, step_us) && perf_add(&samples->mark, mark_us);
}

/* The three take turns. */
static ddp_status take_turns(struct model *model, uint32_t steps, struct samples *samples,
                             struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < steps + WARMUP && status == DDP_OK; i++) {
        double compute_us = 0, reduce_us, step_us, mark_us;
        status = ddp_barrier(model->comm, NULL, err);
        if (status == DDP_OK)
            status = time_step(model, false, &reduce_us, &mark_us, err);
        if (status == DDP_OK)
            compute_us = time_compute(model);
        if (status == DDP_OK)
            status = ddp_barrier(model->comm, NULL, err);
        if (status == DDP_OK)
            status = time_step(model, true, &step_us, NULL, err);
        if (status == DDP_OK && i >= WARMUP &&
            !keep(samples, compute_us, reduce_us, step_us, mark_us))
            status = ddpi_error_nomem(err, sizeof(double));
    }
    return status;
}

/* ---- ranks ---- */

struct shared {
    struct gradient_job job;
    struct gradient_times times;
    struct many_times many;
};

static ddp_status resnet_rank(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    struct shared *shared = arg;
    struct model *model = calloc(1, sizeof *model);
    struct samples samples = {0};
    size_t counts[RESNET50_PARAMETERS];
    (void)world_size;
    if (model == NULL)
        return ddpi_error_nomem(err, sizeof *model);
    resnet50_counts(counts);
    ddp_status status = model_join(model, counts, RESNET50_PARAMETERS, shared->job.views, err);
    if (status == DDP_OK) {
        model_set_work(model, shared->job.backward_ms);
        status = take_turns(model, shared->job.steps, &samples, err);
    }
    if (status == DDP_OK && rank == 0) {
        struct ddp_reducer_stats stats = {.size = sizeof stats};
        status = ddp_reducer_get_stats(model->reducer, &stats);
        shared->times = (struct gradient_times){.compute = perf_percentile(&samples.compute, 50),
                                                .reduce = perf_percentile(&samples.reduce, 50),
                                                .step = perf_percentile(&samples.step, 50),
                                                .mark = perf_percentile(&samples.mark, 50),
                                                .buckets = stats.buckets};
    }
    model_leave(model);
    return status;
}

static ddp_status reduce_each(struct model *model, double *ret_us, struct ddp_error *err)
{
    double begin = perf_now_us();
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < model->count && status == DDP_OK; i++)
        status = ddp_all_reduce(model->comm, model->parameters[i].gradient,
                                model->parameters[i].gradient, model->parameters[i].count,
                                DDP_FLOAT32, DDP_AVERAGE, NULL, err);
    *ret_us = perf_now_us() - begin;
    return status;
}

static ddp_status many_rank(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    struct shared *shared = arg;
    struct model *model = calloc(1, sizeof *model);
    struct perf_samples reducer = {0}, calls = {0}, marks = {0};
    size_t counts[MANY_GRADIENTS];
    (void)world_size;
    if (model == NULL)
        return ddpi_error_nomem(err, sizeof *model);
    for (size_t i = 0; i < MANY_GRADIENTS; i++)
        counts[i] = MANY_COUNT;
    ddp_status status = model_join(model, counts, MANY_GRADIENTS, false, err);
    for (uint32_t i = 0; i < shared->job.steps + WARMUP && status == DDP_OK; i++) {
        double step_us, calls_us, mark_us;
        status = time_step(model, false, &step_us, &mark_us, err);
        if (status == DDP_OK)
            status = reduce_each(model, &calls_us, err);
        if (status == DDP_OK && i >= WARMUP &&
            (!perf_add(&reducer, step_us) || !perf_add(&calls, calls_us) ||
             !perf_add(&marks, mark_us)))
            status = ddpi_error_nomem(err, sizeof(double));
    }
    if (status == DDP_OK && rank == 0)
        shared->many = (struct many_times){.reducer = perf_percentile(&reducer, 50),
                                           .calls = perf_percentile(&calls, 50),
                                           .mark = perf_percentile(&marks, 50)};
    model_leave(model);
    return status;
}

static ddp_status run_ranks(struct shared *shared, ddp_rank_function *function,
                            struct ddp_error *err)
{
    ddp_spawned *spawned;
    ddp_status status = ddp_spawn(function, shared, shared->job.ranks, NULL, &spawned, err);
    if (status != DDP_OK)
        return status;
    status = ddp_spawn_join(spawned, JOIN_MS, NULL, err);
    ddp_spawn_destroy(spawned);
    return status;
}

static ddp_status share_and_run(const struct gradient_job *job, ddp_rank_function *function,
                                struct shared *ret, struct ddp_error *err)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return ddpi_error_sys(err, errno, "no memory to share with the ranks");
    shared->job = *job;
    ddp_status status = run_ranks(shared, function, err);
    *ret = *shared;
    munmap(shared, sizeof *shared);
    return status;
}

ddp_status gradient_ranks_run(const struct gradient_job *job, struct gradient_times *ret,
                              struct ddp_error *err)
{
    struct shared shared;
    ddp_status status = share_and_run(job, resnet_rank, &shared, err);
    *ret = shared.times;
    return status;
}

ddp_status gradient_ranks_run_many(uint32_t ranks, uint32_t steps, struct many_times *ret,
                                   struct ddp_error *err)
{
    struct shared shared;
    ddp_status status = share_and_run(&(struct gradient_job){.ranks = ranks, .steps = steps},
                                      many_rank, &shared, err);
    *ret = shared.many;
    return status;
}
