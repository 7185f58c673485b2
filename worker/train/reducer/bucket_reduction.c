/*
 * bucket_reduction.c - starts and completes the operations of buckets, by the list of gradients or
 * by the stages of a hook. Owns their requests.
 */
#include "reducer.h"

#include "clock.h"
#include "error.h"

/* Called by whichever thread moves the bytes. */
static void announce_end(void *ctx, ddp_status status)
{
    (void)status;
    struct ddpi_bucket *bucket = ctx;
    struct ddp_reducer *reducer = bucket->reducer;
    pthread_mutex_lock(&reducer->ends_lock);
    bucket->end_us = ddpi_monotonic_us();
    bucket->announced = true;
    pthread_cond_signal(&reducer->ended);
    pthread_mutex_unlock(&reducer->ends_lock);
}

/* ---- what is reduced ---- */

/* By which a rank divides before, or all do after the sum. */
static uint32_t divisor(const struct ddp_reducer *reducer)
{
    return reducer->options.divide_by_active ? reducer->active : reducer->world_size;
}

static double predivide(const struct ddp_reducer *reducer)
{
    return reducer->options.predivide != 0 ? reducer->options.predivide : 1;
}

/* Sets how @operation weights this rank's gradients. An average over fewer ranks than there are is
 * a sum with a factor. */
static void weight_operation(const struct ddp_reducer *reducer, struct ddp_operation *operation)
{
    bool all = divisor(reducer) == reducer->world_size;
    switch (reducer->options.average) {
    case DDP_REDUCER_AVERAGE_BEFORE:
        operation->op = all ? DDP_AVERAGE_BEFORE : DDP_PREMUL_SUM;
        operation->factor = 1.0 / divisor(reducer);
        return;
    case DDP_REDUCER_AVERAGE_AFTER:
        if (all && predivide(reducer) == 1) {
            operation->op = DDP_AVERAGE;
            return;
        }
        break;
    case DDP_REDUCER_SUM:
        break;
    }
    operation->op = predivide(reducer) != 1 ? DDP_PREMUL_SUM : DDP_SUM;
    operation->factor = 1 / predivide(reducer);
}

/* What is left to multiply once the sum is there. */
static double factor_after(const struct ddp_reducer *reducer)
{
    bool all = divisor(reducer) == reducer->world_size;
    if (reducer->hook.stage != NULL || reducer->options.average != DDP_REDUCER_AVERAGE_AFTER ||
        (all && predivide(reducer) == 1))
        return 1;
    return predivide(reducer) / divisor(reducer);
}

/* ---- streams ---- */

void *ddpi_bucket_stream(const struct ddpi_bucket *bucket)
{
    return bucket->has_stream ? bucket->stream : bucket->reducer->stream;
}

/* ---- starting ---- */

static ddp_status name_bucket(const struct ddpi_bucket *bucket, ddp_status status,
                              struct ddp_error *err)
{
    char text[DDPI_PARAMETER_TEXT];
    const struct ddp_bucket *shown = &bucket->shown;
    return ddpi_error_wrap(
        err, status, "bucket %u of %u (%s and %zu others)", shown->index, shown->nbuckets,
        ddpi_parameter_name(bucket->reducer, shown->parameters[0], text), shown->ngradients - 1);
}

static ddp_status start_operation(struct ddpi_bucket *bucket, struct ddp_operation *operation,
                                  struct ddp_error *err)
{
    operation->on_done = announce_end;
    operation->ctx = bucket;
    bucket->non_finite = 0;
    if (bucket->reducer->options.check_finite && operation->kind == DDP_KIND_ALL_REDUCE &&
        ddpi_reducer_takes(operation->dtype))
        operation->non_finite = &bucket->non_finite;
    bucket->announced = false;
    ddp_status status = ddp_start(bucket->reducer->comm, operation, &bucket->request, err);
    return status == DDP_OK ? DDP_OK : name_bucket(bucket, status, err);
}

/* Ask the hook for the operation of the next stage, and start it. */
static ddp_status start_stage(struct ddpi_bucket *bucket, struct ddp_error *err)
{
    const struct ddp_comm_hook *hook = &bucket->reducer->hook;
    struct ddp_operation operation = {.size = sizeof operation,
                                      .stream = ddpi_bucket_stream(bucket)};
    int more = 0;
    bucket->shown.stream = operation.stream;
    bucket->has_stream_work = bucket->reducer->memory != NULL; /* the hook's */
    ddp_status status =
        hook->stage(hook->ctx, &bucket->shown, bucket->stage++, &operation, &more, err);
    if (status != DDP_OK)
        return name_bucket(bucket, status, err);
    bucket->more = more != 0;
    return bucket->more ? start_operation(bucket, &operation, err) : DDP_OK;
}

static ddp_status start_reduction(struct ddp_reducer *reducer, struct ddpi_bucket *bucket,
                                  struct ddp_error *err)
{
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_REDUCE,
                                      .dtype = bucket->shown.dtype,
                                      .stream = ddpi_bucket_stream(bucket)};
    weight_operation(reducer, &operation);
    operation.buffers = bucket->runs;
    operation.nbuffers = bucket->nruns;
    return start_operation(bucket, &operation, err);
}

ddp_status ddpi_bucket_start(struct ddp_reducer *reducer, struct ddpi_bucket *bucket,
                             struct ddp_error *err)
{
    bucket->shown.step = reducer->steps;
    bucket->shown.divisor = divisor(reducer);
    bucket->begin_us = bucket->end_us = ddpi_monotonic_us();
    bucket->stage = 0;
    ddp_status status = ddpi_fill_parked(bucket, err);
    if (status != DDP_OK)
        return name_bucket(bucket, status, err);
    return reducer->hook.stage != NULL ? start_stage(bucket, err)
                                       : start_reduction(reducer, bucket, err);
}

/* ---- completing ---- */

/* A request may be known to have ended before the thread that ended it has reported so. */
static ddp_status complete_request(struct ddpi_bucket *bucket, struct ddp_error *err)
{
    struct ddp_reducer *reducer = bucket->reducer;
    ddp_status status = ddp_request_wait(bucket->request, 0, NULL, err);
    pthread_mutex_lock(&reducer->ends_lock);
    while (!bucket->announced)
        pthread_cond_wait(&reducer->ended, &reducer->ends_lock);
    pthread_mutex_unlock(&reducer->ends_lock);
    ddp_request_free(bucket->request);
    bucket->request = NULL;
    reducer->non_finite = reducer->non_finite || bucket->non_finite;
    return status == DDP_OK ? DDP_OK : name_bucket(bucket, status, err);
}

static ddp_status scale_after(const struct ddp_reducer *reducer, struct ddpi_bucket *bucket,
                              struct ddp_error *err)
{
    double factor = factor_after(reducer);
    ddp_status status = DDP_OK;
    if (factor == 1)
        return DDP_OK;
    bucket->has_stream_work = true;
    for (size_t i = 0; i < bucket->nruns && status == DDP_OK; i++)
        status = ddpi_gradients_scale(reducer->memory, bucket->runs[i].recv, bucket->runs[i].recv,
                                      bucket->runs[i].count, bucket->shown.dtype, factor,
                                      ddpi_bucket_stream(bucket), err);
    return status == DDP_OK ? DDP_OK : name_bucket(bucket, status, err);
}

/* One stage of all buckets: complete it, and start the next one. */
static ddp_status complete_stage(struct ddp_reducer *reducer, bool *ret_more, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    *ret_more = false;
    for (uint32_t i = 0; i < reducer->plan.nbuckets && status == DDP_OK; i++) {
        struct ddpi_bucket *bucket = &reducer->buckets[i];
        if (bucket->request == NULL)
            continue;
        status = complete_request(bucket, err);
        if (status == DDP_OK && reducer->hook.stage != NULL)
            status = start_stage(bucket, err);
        else if (status == DDP_OK)
            status = scale_after(reducer, bucket, err);
        *ret_more = *ret_more || bucket->request != NULL;
    }
    return status;
}

ddp_status ddpi_buckets_complete(struct ddp_reducer *reducer, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (bool more = true; more && status == DDP_OK;)
        status = complete_stage(reducer, &more, err);
    return status;
}

ddp_status ddpi_buckets_settle(struct ddp_reducer *reducer, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; reducer->buckets != NULL && i < reducer->plan.nbuckets; i++) {
        struct ddpi_bucket *bucket = &reducer->buckets[i];
        if (bucket->has_stream_work)
            status = ddpi_gradients_await(reducer->memory, ddpi_bucket_stream(bucket), err);
        if (status != DDP_OK)
            return name_bucket(bucket, status, err);
        bucket->has_stream_work = false;
    }
    return status;
}

void ddpi_buckets_drain(struct ddp_reducer *reducer)
{
    for (uint32_t i = 0; reducer->buckets != NULL && i < reducer->plan.nbuckets; i++)
        if (reducer->buckets[i].request != NULL)
            (void)complete_request(&reducer->buckets[i], NULL);
    (void)ddpi_used_map_complete(reducer, NULL);
}
