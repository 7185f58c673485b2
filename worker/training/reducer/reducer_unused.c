/*
 * reducer_unused.c - gradients that a step of this rank does not use. Zeros are reduced in their
 * place, and all ranks find out which parameters some rank has used: a parameter that none has used
 * keeps its gradient. Owns the scratch memory of parameters.
 */
#include "reducer.h"

#include "error.h"
#include "mem.h"

#include <string.h>

static size_t bytes_of(const struct ddpi_parameter *parameter)
{
    return parameter->count * ddp_dtype_size(parameter->dtype);
}

/* A view must be reduced where it lies, so its content is kept in the scratch memory; otherwise
 * zeros are reduced there. */
ddp_status ddpi_park(struct ddp_reducer *reducer, uint32_t parameter, struct ddp_error *err)
{
    struct ddpi_parameter *unused = &reducer->parameters[parameter];
    size_t bytes = bytes_of(unused);
    if (unused->scratch == NULL)
        unused->scratch = ddpi_calloc(1, bytes);
    if (unused->scratch == NULL)
        return ddpi_error_nomem(err, bytes);
    if (reducer->views != NULL) {
        memcpy(unused->scratch, unused->gradient, bytes);
        memset(unused->gradient, 0, bytes);
    } else {
        memset(unused->scratch, 0, bytes);
        reducer->pieces[unused->slot].send = unused->scratch;
        reducer->pieces[unused->slot].recv = unused->scratch;
    }
    unused->parked = true;
    return DDP_OK;
}

static void unpark(struct ddp_reducer *reducer, uint32_t parameter)
{
    struct ddpi_parameter *unused = &reducer->parameters[parameter];
    bool used_elsewhere = reducer->used_map[parameter] != 0 && !reducer->shadowing;
    unused->parked = false;
    if (reducer->views != NULL && !used_elsewhere)
        memcpy(unused->gradient, unused->scratch, bytes_of(unused));
    if (reducer->views != NULL)
        return;
    reducer->pieces[unused->slot].send = unused->gradient;
    reducer->pieces[unused->slot].recv = unused->gradient;
    if (used_elsewhere)
        memcpy(unused->gradient, unused->scratch, bytes_of(unused));
}

void ddpi_unpark_all(struct ddp_reducer *reducer)
{
    for (uint32_t i = 0; i < reducer->nparameters; i++)
        if (reducer->parameters[i].parked)
            unpark(reducer, i);
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
