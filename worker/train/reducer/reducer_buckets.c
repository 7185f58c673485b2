/*
 * reducer_buckets.c - makes the plan and the buckets of a reducer. Owns nothing.
 *
 * A bucket is a list of buffers, one for each gradient. Views that are neighbours in memory are
 * reduced as one buffer: they lie in the reverse order of registration, so a bucket of the usual
 * order is a single one.
 */
#include "reducer.h"

#include "error.h"
#include "mem.h"

#include <stdlib.h>

static uint64_t bytes_of(const struct ddpi_parameter *parameter)
{
    return parameter->count * ddp_dtype_size(parameter->dtype);
}

/* ---- buckets of a plan ---- */

static int compare_addresses(const void *a, const void *b)
{
    const char *left = ((const struct ddp_buffer *)a)->recv;
    const char *right = ((const struct ddp_buffer *)b)->recv;
    return (left > right) - (left < right);
}

/* Sort @runs by address, and join neighbours. Returns how many are left. */
static size_t join_neighbours(struct ddp_buffer *runs, size_t count, size_t element)
{
    size_t last = 0;
    qsort(runs, count, sizeof *runs, compare_addresses);
    for (size_t i = 1; i < count; i++)
        if ((char *)runs[last].recv + runs[last].count * element == runs[i].recv)
            runs[last].count += runs[i].count;
        else
            runs[++last] = runs[i];
    return last + 1;
}

static void fill_bucket(struct ddp_reducer *reducer, uint32_t number)
{
    const struct ddpi_bucket_plan *plan = &reducer->plan;
    struct ddpi_bucket *bucket = &reducer->buckets[number];
    uint32_t begin = ddpi_bucket_begin(plan, number), size = ddpi_bucket_size(plan, number);
    *bucket =
        (struct ddpi_bucket){.reducer = reducer, .runs = &reducer->pieces[begin], .nruns = size};
    bucket->shown = (struct ddp_bucket){
        .size = sizeof bucket->shown,
        .index = number,
        .nbuckets = plan->nbuckets,
        .dtype = reducer->parameters[plan->order[begin]].dtype,
        .parameters = &plan->order[begin],
        .gradients = &reducer->pieces[begin],
        .rows = &reducer->rows[begin],
        .ngradients = size,
        .on_device = reducer->memory != NULL,
        .memory = reducer->memory,
    };
    for (uint32_t slot = begin; slot < begin + size; slot++) {
        struct ddpi_parameter *parameter = &reducer->parameters[plan->order[slot]];
        parameter->slot = slot;
        reducer->rows[slot] = parameter->rows;
        reducer->pieces[slot] = (struct ddp_buffer){
            .send = parameter->gradient, .recv = parameter->gradient, .count = parameter->count};
        bucket->shown.count += parameter->count;
    }
    if (reducer->views == NULL)
        return;
    for (uint32_t slot = begin; slot < begin + size; slot++)
        reducer->runs[slot] = reducer->pieces[slot];
    bucket->runs = &reducer->runs[begin];
    bucket->nruns =
        join_neighbours(&reducer->runs[begin], size, ddp_dtype_size(bucket->shown.dtype));
}

void ddpi_reducer_drop_buckets(struct ddp_reducer *reducer)
{
    if (reducer->hook.forget != NULL)
        for (uint32_t i = 0; reducer->buckets != NULL && i < reducer->plan.nbuckets; i++)
            reducer->hook.forget(reducer->hook.ctx, &reducer->buckets[i].shown);
    ddpi_free(reducer->buckets);
    reducer->buckets = NULL;
    ddpi_bucket_plan_free(&reducer->plan);
}

/* Takes @plan over, if memory is not short. */
static bool make_buckets(struct ddp_reducer *reducer, struct ddpi_bucket_plan *plan)
{
    struct ddpi_bucket *buckets = ddpi_calloc((size_t)plan->nbuckets + 1, sizeof *buckets);
    if (buckets == NULL) {
        ddpi_bucket_plan_free(plan);
        return false;
    }
    ddpi_reducer_drop_buckets(reducer);
    reducer->plan = *plan;
    reducer->buckets = buckets;
    for (uint32_t i = 0; i < plan->nbuckets; i++)
        fill_bucket(reducer, i);
    return true;
}

/* ---- plans ---- */

static bool plan_buckets(struct ddp_reducer *reducer, const uint32_t *order, const uint64_t *limits,
                         uint32_t nlimits)
{
    uint32_t count = reducer->nparameters;
    struct ddpi_plan_parameter *parameters = ddpi_calloc((size_t)count + 1, sizeof *parameters);
    struct ddpi_bucket_plan plan;
    if (parameters == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        parameters[i] = (struct ddpi_plan_parameter){
            .weight = reducer->options.message_size != 0 ? reducer->parameters[i].count
                                                         : bytes_of(&reducer->parameters[i]),
            .key = reducer->parameters[i].dtype};
    bool made = ddpi_bucket_plan_make(parameters, order, count, limits, nlimits, &plan) &&
                make_buckets(reducer, &plan);
    ddpi_free(parameters);
    return made;
}

/* Unless the parameters of a step are known only at its end, the first step shows the order. */
ddp_status ddpi_reducer_plan(struct ddp_reducer *reducer, struct ddp_error *err)
{
    static const uint64_t no_limit = UINT64_MAX;
    const struct ddp_reducer_options *options = &reducer->options;
    bool dynamic = options->find_unused && !options->static_graph;
    bool limited = dynamic && !options->delay_all_reduce;
    size_t count = (size_t)reducer->nparameters + 1;
    reducer->rebuild_due = false;
    reducer->rebuilt = dynamic || options->delay_all_reduce != 0;
    reducer->pieces = ddpi_calloc(count, sizeof *reducer->pieces);
    reducer->runs = ddpi_calloc(count, sizeof *reducer->runs);
    reducer->rows = ddpi_calloc(count, sizeof *reducer->rows);
    reducer->used_map = ddpi_calloc(count, sizeof *reducer->used_map);
    if (reducer->pieces == NULL || reducer->runs == NULL || reducer->rows == NULL ||
        reducer->used_map == NULL ||
        !plan_buckets(reducer, NULL, limited ? reducer->limits : &no_limit,
                      limited ? reducer->nlimits : 1) ||
        !ddpi_bucket_pass_init(&reducer->pass, &reducer->plan))
        return ddpi_error_nomem(err, count * sizeof *reducer->pieces);
    return DDP_OK;
}

/* Parameters that have not come in the step, on a rank without data all of them, are last. */
static void complete_order(const struct ddp_reducer *reducer, uint32_t *order)
{
    uint32_t count = reducer->pass.arrived;
    for (uint32_t i = 0; i < count; i++)
        order[i] = reducer->pass.arrival[i];
    for (uint32_t i = reducer->nparameters; i-- > 0;)
        if (!reducer->pass.ready[i])
            order[count++] = i;
}

/* Rank 0's order decides. */
ddp_status ddpi_reducer_rebuild(struct ddp_reducer *reducer, struct ddp_error *err)
{
    uint32_t count = reducer->nparameters;
    uint32_t *order = ddpi_calloc((size_t)count + 1, sizeof *order);
    if (order == NULL)
        return ddpi_error_nomem(err, ((size_t)count + 1) * sizeof *order);
    complete_order(reducer, order);
    ddp_status status = ddp_broadcast(reducer->comm, order, count, DDP_UINT32, 0, NULL, err);
    if (status == DDP_OK && !ddpi_plan_order_is_complete(order, count, reducer->pass.ready))
        status = ddpi_error_set(err, DDP_E_PROTOCOL,
                                "rank 0 sent an order of gradients that does not have each of the "
                                "%u parameters once",
                                count);
    else if (status == DDP_OK && !plan_buckets(reducer, order, reducer->limits, reducer->nlimits))
        status = ddpi_error_nomem(err, count * sizeof *order);
    ddpi_free(order);
    reducer->rebuild_due = false;
    reducer->rebuilt = true;
    reducer->rebuilds++;
    return status;
}
