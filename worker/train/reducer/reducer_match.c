/*
 * reducer_match.c - compares options and parameters of all ranks before anything else is done with
 * them. Owns nothing.
 *
 * Ranks first gather numbers that must be equal everywhere; then rank 0 broadcasts its parameters,
 * and ranks gather what each has found to differ. So all ranks return the same sentence.
 */
#include "reducer.h"

#include "bytes.h"
#include "error.h"
#include "mem.h"

#include <inttypes.h>
#include <string.h>

/* ---- options ---- */

static const char *const trait_names[] = {
    "parameters",
    "buffers",
    "average",
    "hook",
    "as_views",
    "find_unused",
    "static_graph",
    "delay_all_reduce",
    "uneven_inputs",
    "on_device",
    "check_finite",
    "divide_by_active",
    "no_broadcast",
    "message_size",
    "limits of buckets",
    "digest of these limits",
    "digest of predivide",
};
enum { TRAITS = sizeof trait_names / sizeof *trait_names };

static void read_traits(const struct ddp_reducer *reducer, uint64_t traits[TRAITS])
{
    const struct ddp_reducer_options *options = &reducer->options;
    const uint64_t values[TRAITS] = {
        reducer->nparameters,
        reducer->nbuffers,
        options->average,
        options->hook != NULL,
        options->as_views,
        options->find_unused,
        options->static_graph,
        options->delay_all_reduce,
        options->uneven_inputs,
        options->on_device,
        options->check_finite,
        options->divide_by_active,
        options->no_broadcast,
        options->message_size,
        reducer->nlimits,
        ddpi_digest64(DDPI_DIGEST64_NONE, reducer->limits,
                      reducer->nlimits * sizeof *reducer->limits),
        ddpi_digest64(DDPI_DIGEST64_NONE, &options->predivide, sizeof options->predivide),
    };
    memcpy(traits, values, sizeof values);
}

static ddp_status compare_traits(const struct ddp_reducer *reducer, const uint64_t *all,
                                 struct ddp_error *err)
{
    for (uint32_t rank = 1; rank < reducer->world_size; rank++)
        for (uint32_t i = 0; i < TRAITS; i++)
            if (all[rank * TRAITS + i] != all[i])
                return ddpi_error_set(
                    err, DDP_E_MISMATCH,
                    "ranks create different reducers: %s: %" PRIu64 " on rank 0, %" PRIu64
                    " on rank %u; pass the same options and parameters on all ranks",
                    trait_names[i], all[i], all[rank * TRAITS + i], rank);
    return DDP_OK;
}

static ddp_status match_traits(struct ddp_reducer *reducer, struct ddp_error *err)
{
    uint64_t own[TRAITS];
    uint64_t *all = ddpi_calloc(reducer->world_size, sizeof own);
    if (all == NULL)
        return ddpi_error_nomem(err, reducer->world_size * sizeof own);
    read_traits(reducer, own);
    ddp_status status = ddp_all_gather(reducer->comm, own, all, TRAITS, DDP_UINT64, NULL, err);
    if (status == DDP_OK)
        status = compare_traits(reducer, all, err);
    ddpi_free(all);
    return status;
}

/* ---- parameters ---- */

struct shape {
    uint64_t count, rows, dtype, has_data;
};

struct finding {
    uint64_t parameter; /* the first that differs from rank 0's; UINT64_MAX: none */
    struct shape shape; /* of this rank */
};

enum { SHAPE_NUMBERS = 4, FINDING_NUMBERS = 5, SHAPE_TEXT = 96 };

static const struct ddpi_parameter *nth(const struct ddp_reducer *reducer, uint64_t i)
{
    return i < reducer->nparameters ? &reducer->parameters[i]
                                    : &reducer->buffers[i - reducer->nparameters];
}

static struct shape shape_of(const struct ddpi_parameter *parameter)
{
    return (struct shape){.count = parameter->count,
                          .rows = parameter->rows,
                          .dtype = parameter->dtype,
                          .has_data = parameter->data != NULL};
}

static void describe_shape(const struct shape *shape, char text[SHAPE_TEXT])
{
    int used = snprintf(text, SHAPE_TEXT, "%" PRIu64 " %s", shape->count,
                        ddp_dtype_name((ddp_dtype)shape->dtype));
    if (shape->rows != 0)
        used +=
            snprintf(text + used, SHAPE_TEXT - (size_t)used, " in %" PRIu64 " rows", shape->rows);
    if (!shape->has_data)
        snprintf(text + used, SHAPE_TEXT - (size_t)used, " without data");
}

static struct finding find_difference(const struct ddp_reducer *reducer, const struct shape *first)
{
    uint64_t count = (uint64_t)reducer->nparameters + reducer->nbuffers;
    for (uint64_t i = 0; i < count; i++) {
        struct shape own = shape_of(nth(reducer, i));
        if (memcmp(&own, &first[i], sizeof own) != 0)
            return (struct finding){.parameter = i, .shape = own};
    }
    return (struct finding){.parameter = UINT64_MAX};
}

static ddp_status say_difference(const struct ddp_reducer *reducer, const struct shape *shapes,
                                 const struct finding *findings, struct ddp_error *err)
{
    for (uint32_t rank = 1; rank < reducer->world_size; rank++) {
        uint64_t i = findings[rank].parameter;
        if (i >= (uint64_t)reducer->nparameters + reducer->nbuffers)
            continue;
        char here[SHAPE_TEXT], there[SHAPE_TEXT];
        describe_shape(&shapes[i], there);
        describe_shape(&findings[rank].shape, here);
        bool buffer = i >= reducer->nparameters;
        return ddpi_error_set(err, DDP_E_MISMATCH,
                              "%s %" PRIu64 " (%s) has %s on rank 0 and %s on rank %u; all ranks "
                              "must register the same parameters in the same order",
                              buffer ? "buffer" : "parameter",
                              buffer ? i - reducer->nparameters : i, nth(reducer, i)->name, there,
                              here, rank);
    }
    return DDP_OK;
}

static ddp_status match_shapes(struct ddp_reducer *reducer, struct shape *shapes,
                               struct finding *findings, struct ddp_error *err)
{
    size_t count = (size_t)reducer->nparameters + reducer->nbuffers;
    if (reducer->rank == 0)
        for (size_t i = 0; i < count; i++)
            shapes[i] = shape_of(nth(reducer, i));
    ddp_status status =
        ddp_broadcast(reducer->comm, shapes, count * SHAPE_NUMBERS, DDP_UINT64, 0, NULL, err);
    if (status != DDP_OK)
        return status;
    struct finding own = find_difference(reducer, shapes);
    status = ddp_all_gather(reducer->comm, &own, findings, FINDING_NUMBERS, DDP_UINT64, NULL, err);
    return status == DDP_OK ? say_difference(reducer, shapes, findings, err) : status;
}

ddp_status ddpi_reducer_match(struct ddp_reducer *reducer, struct ddp_error *err)
{
    ddp_status status = match_traits(reducer, err);
    if (status != DDP_OK)
        return status;
    size_t count = (size_t)reducer->nparameters + reducer->nbuffers;
    struct shape *shapes = ddpi_calloc(count + 1, sizeof *shapes);
    struct finding *findings = ddpi_calloc(reducer->world_size, sizeof *findings);
    if (shapes == NULL || findings == NULL)
        status = ddpi_error_nomem(err, (count + 1) * sizeof *shapes +
                                           reducer->world_size * sizeof *findings);
    else
        status = match_shapes(reducer, shapes, findings, err);
    ddpi_free(shapes);
    ddpi_free(findings);
    return status;
}
