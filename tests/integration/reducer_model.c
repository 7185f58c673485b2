/*
 * reducer_model.c - see reducer_model.h. Owns nothing.
 */
#include "reducer_model.h"

#include <math.h>
#include <stdlib.h>

enum { LARGEST = 280000 };

const size_t reducer_model_counts[PARAMETERS] = {300, 1, LARGEST, 77, 5, 4096, 1, 31000, 2, 640, 9};
static const char *const names[PARAMETERS] = {"conv.weight", "conv.bias", "fc.weight", "fc.bias",
                                              NULL};
const size_t reducer_model_tiny_limits[2] = {1, 64};
const size_t reducer_model_one_limit[1] = {2000};

static bool is_double(size_t parameter)
{
    return parameter > 6 && parameter % 2 == 1;
}

double reducer_model_value(uint32_t rank, size_t step, size_t parameter, size_t i)
{
    return (double)((rank + 1) * 8 + step * 16 + parameter * 4 + i % 5 * 32);
}

double reducer_model_read(const void *memory, size_t parameter, size_t i)
{
    return is_double(parameter) ? ((const double *)memory)[i] : (double)((const float *)memory)[i];
}

void reducer_model_write(void *memory, size_t parameter, size_t i, double value)
{
    if (is_double(parameter))
        ((double *)memory)[i] = value;
    else
        ((float *)memory)[i] = (float)value;
}

static void init_model(struct reducer_model *model, uint32_t rank, bool views)
{
    for (size_t p = 0; p < PARAMETERS; p++) {
        size_t bytes = reducer_model_counts[p] * (is_double(p) ? 8 : 4);
        model->data[p] = calloc(1, bytes);
        model->gradient[p] = views ? NULL : calloc(1, bytes);
        CHECK(model->data[p] != NULL);
        for (size_t i = 0; i < reducer_model_counts[p]; i++)
            reducer_model_write(model->data[p], p, i, 1000.0 * rank + (double)p);
        model->parameters[p] =
            (struct ddp_parameter){.name = names[p],
                                   .data = model->data[p],
                                   .gradient = model->gradient[p],
                                   .count = reducer_model_counts[p],
                                   .dtype = is_double(p) ? DDP_FLOAT64 : DDP_FLOAT32};
    }
}

ddp_reducer *reducer_model_create(ddp_comm *comm, struct reducer_model *model,
                                  struct ddp_reducer_options *options)
{
    ddp_reducer *reducer;
    options->size = sizeof *options;
    options->parameters = model->parameters;
    options->nparameters = PARAMETERS;
    init_model(model, ddp_comm_rank(comm), options->as_views != 0);
    for (size_t p = 0; p < PARAMETERS; p++)
        model->parameters[p].gradient = options->as_views ? NULL : model->gradient[p];
    CHECK_OK(ddp_reducer_create(comm, options, &reducer, err));
    for (size_t p = 0; p < PARAMETERS; p++) {
        model->gradient[p] = ddp_reducer_gradient(reducer, p);
        CHECK(model->gradient[p] != NULL);
        for (size_t i = 0; i < reducer_model_counts[p]; i++)
            CHECK(options->no_broadcast || reducer_model_read(model->data[p], p, i) == (double)p);
    }
    CHECK(ddp_reducer_gradient(reducer, PARAMETERS) == NULL);
    return reducer;
}

void reducer_model_fill(struct reducer_model *model, uint32_t rank, size_t step, size_t p)
{
    for (size_t i = 0; i < reducer_model_counts[p]; i++)
        reducer_model_write(model->gradient[p], p, i, reducer_model_value(rank, step, p, i));
}

void reducer_model_shuffle(size_t order[PARAMETERS], uint32_t rank, size_t step)
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

double reducer_model_sum(uint32_t ranks, size_t step, size_t p, size_t i)
{
    double sum = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        sum += reducer_model_value(rank, step, p, i);
    return sum;
}

void reducer_model_check_value(double seen, double expected)
{
    CHECK(fabs(seen - expected) <= fabs(expected) * 1e-6);
}

void reducer_model_check(const struct reducer_model *model, uint32_t ranks, size_t step,
                         double factor)
{
    for (size_t p = 0; p < PARAMETERS; p++)
        for (size_t i = 0; i < reducer_model_counts[p]; i++)
            reducer_model_check_value(reducer_model_read(model->gradient[p], p, i),
                                      reducer_model_sum(ranks, step, p, i) * factor);
}

void reducer_model_step(ddp_reducer *reducer, struct reducer_model *model, uint32_t rank,
                        size_t step)
{
    size_t order[PARAMETERS];
    reducer_model_shuffle(order, rank, step);
    CHECK_OK(ddp_reducer_begin(reducer, err));
    for (size_t i = 0; i < PARAMETERS; i++) {
        reducer_model_fill(model, rank, step, order[i]);
        CHECK_OK(ddp_reducer_ready(reducer, order[i], NULL, err));
    }
    CHECK_OK(ddp_reducer_finish(reducer, err));
}
