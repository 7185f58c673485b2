/*
 * reducer_unused.c - gradients that a step of this rank does not use. Zeros are reduced in their
 * place, and all ranks find out which parameters some rank has used: a parameter that none has used
 * keeps its gradient. Owns the scratch memory of parameters.
 */
#include "reducer.h"

static size_t bytes_of(const struct ddpi_parameter *parameter)
{
    return parameter->count * ddp_dtype_size(parameter->dtype);
}

ddp_status ddpi_park(struct ddp_reducer *reducer, uint32_t parameter, struct ddp_error *err)
{
    struct ddpi_parameter *unused = &reducer->parameters[parameter];
    ddp_status status = DDP_OK;
    if (unused->scratch == NULL)
        status = ddpi_gradients_alloc(reducer->memory, bytes_of(unused), &unused->scratch, err);
    if (status != DDP_OK)
        return status;
    if (reducer->views == NULL) {
        reducer->pieces[unused->slot].send = unused->scratch;
        reducer->pieces[unused->slot].recv = unused->scratch;
    }
    unused->parked = true;
    return DDP_OK;
}

/* A view must be reduced where it lies, so its content is kept in the scratch memory; otherwise
 * zeros are reduced there. */
static ddp_status fill(const struct ddpi_bucket *bucket, const struct ddpi_parameter *unused,
                       struct ddp_error *err)
{
    struct ddp_reducer *reducer = bucket->reducer;
    void *stream = ddpi_bucket_stream(bucket);
    size_t bytes = bytes_of(unused);
    if (reducer->views == NULL)
        return ddpi_gradients_zero(reducer->memory, unused->scratch, bytes, stream, err);
    ddp_status status =
        ddpi_gradients_copy(reducer->memory, unused->scratch, unused->gradient, bytes, stream, err);
    return status == DDP_OK
               ? ddpi_gradients_zero(reducer->memory, unused->gradient, bytes, stream, err)
               : status;
}

ddp_status ddpi_fill_parked(struct ddpi_bucket *bucket, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < bucket->shown.ngradients && status == DDP_OK; i++) {
        const struct ddpi_parameter *parameter =
            &bucket->reducer->parameters[bucket->shown.parameters[i]];
        if (parameter->parked)
            status = fill(bucket, parameter, err);
    }
    return status;
}

static ddp_status unpark(struct ddp_reducer *reducer, uint32_t parameter, struct ddp_error *err)
{
    struct ddpi_parameter *unused = &reducer->parameters[parameter];
    struct ddpi_bucket *bucket = &reducer->buckets[reducer->plan.bucket_of[parameter]];
    bool used_elsewhere = reducer->used_map[parameter] != 0 && !reducer->shadowing;
    bool is_view = reducer->views != NULL;
    unused->parked = false;
    if (!is_view) {
        reducer->pieces[unused->slot].send = unused->gradient;
        reducer->pieces[unused->slot].recv = unused->gradient;
    }
    if (is_view == used_elsewhere) /* the gradient is what it must be */
        return DDP_OK;
    bucket->has_stream_work = true;
    return ddpi_gradients_copy(reducer->memory, unused->gradient, unused->scratch, bytes_of(unused),
                               ddpi_bucket_stream(bucket), err);
}

ddp_status ddpi_unpark_all(struct ddp_reducer *reducer, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < reducer->nparameters && status == DDP_OK; i++)
        if (reducer->parameters[i].parked)
            status = unpark(reducer, i, err);
    return status;
}

/* ---- which are used anywhere ---- */

static bool wants_map(const struct ddp_reducer *reducer)
{
    return reducer->learning || (reducer->options.find_unused && !reducer->static_map);
}

ddp_status ddpi_used_map_start(struct ddp_reducer *reducer, struct ddp_error *err)
{
    if (!wants_map(reducer))
        return DDP_OK;
    for (uint32_t i = 0; i < reducer->nparameters; i++)
        reducer->used_map[i] = reducer->parameters[i].used && !reducer->shadowing;
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_REDUCE,
                                      .send = reducer->used_map,
                                      .recv = reducer->used_map,
                                      .count = reducer->nparameters,
                                      .dtype = DDP_UINT8,
                                      .op = DDP_MAX};
    return ddp_start(reducer->comm, &operation, &reducer->map_request, err);
}

ddp_status ddpi_used_map_complete(struct ddp_reducer *reducer, struct ddp_error *err)
{
    if (reducer->map_request == NULL)
        return DDP_OK;
    ddp_status status = ddp_request_wait(reducer->map_request, 0, NULL, err);
    ddp_request_free(reducer->map_request);
    reducer->map_request = NULL;
    reducer->static_map = reducer->learning;
    return status;
}
