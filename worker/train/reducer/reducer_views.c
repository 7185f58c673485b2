/*
 * reducer_views.c - lays gradients out in one block of memory. Owns the block, unless it is the
 * caller's.
 *
 * Gradients of a type lie together, in the reverse order of registration, as they come in about
 * that order: so those of a bucket are neighbours.
 */
#include "mem.h"
#include "reduce.h"
#include "reducer.h"

enum { ALIGNMENT = 64 };

size_t ddp_reducer_view_bytes(const struct ddp_reducer_options *options)
{
    size_t bytes = 0;
    for (uint32_t dtype = 0; dtype < DDPI_DTYPES; dtype++) {
        size_t size = ddp_dtype_size((ddp_dtype)dtype), first = ddpi_round_up(bytes, ALIGNMENT),
               end = first;
        for (size_t i = 0; i < options->nparameters; i++) {
            const struct ddp_parameter *parameter = &options->parameters[i];
            if (ddp_dtype_size(parameter->dtype) == 0 || parameter->count > SIZE_MAX / 2 / size)
                return 0;
            if (parameter->dtype == dtype &&
                __builtin_add_overflow(end, parameter->count * size, &end))
                return 0;
        }
        bytes = end != first ? end : bytes;
    }
    return bytes;
}

/* Places as ddp_reducer_view_bytes() counts. */
static void place_gradients(struct ddp_reducer *reducer)
{
    size_t at = 0;
    for (uint32_t dtype = 0; dtype < DDPI_DTYPES; dtype++) {
        at = ddpi_round_up(at, ALIGNMENT);
        for (uint32_t i = reducer->nparameters; i-- > 0;) {
            struct ddpi_parameter *parameter = &reducer->parameters[i];
            if (parameter->dtype != dtype)
                continue;
            parameter->gradient = (char *)reducer->views + at;
            at += parameter->count * ddp_dtype_size(parameter->dtype);
        }
    }
}

ddp_status ddpi_views_make(struct ddp_reducer *reducer, struct ddp_error *err)
{
    const struct ddp_reducer_options *options = &reducer->options;
    ddp_status status = DDP_OK;
    reducer->views = options->view_memory;
    if (reducer->views == NULL)
        status = ddp_alloc(reducer->comm, ddp_reducer_view_bytes(options), &reducer->views, err);
    if (status == DDP_OK)
        place_gradients(reducer);
    return status;
}

/* The memory is freed whatever is returned: an error is one of the communicator, which knows it. */
void ddpi_views_free(struct ddp_reducer *reducer)
{
    struct ddp_error err;
    if (reducer->views == NULL || reducer->options.view_memory != NULL)
        return;
    if (ddp_free(reducer->comm, reducer->views, &err) != DDP_E_INVALID)
        reducer->views = NULL;
}
