/*
 * reducer_model.h - the parameters and gradients of a rank whose reducer is tested: of every size,
 * some without a name, some of float64.
 *
 * Gradients are small whole numbers, so that sums are exact, and averages over 2 or 4 ranks are
 * too. All functions end the rank's process if something is not as expected.
 */
#ifndef REDUCER_MODEL_H
#define REDUCER_MODEL_H

#include "world.h"

#include <ddprun/ddp_reducer.h>

enum { PARAMETERS = 11, STEPS = 5 };

/* Parameters with an odd number that is above 6 are float64. */
struct reducer_model {
    float *data[PARAMETERS];
    void *gradient[PARAMETERS];
    struct ddp_parameter parameters[PARAMETERS];
};

extern const size_t reducer_model_counts[PARAMETERS];

/* For bucket_bytes: many buckets, and some. */
extern const size_t reducer_model_tiny_limits[2];
extern const size_t reducer_model_one_limit[1];

/* A reducer of @model, which is made with it; parameters are as on rank 0 afterwards. */
ddp_reducer *reducer_model_create(ddp_comm *comm, struct reducer_model *model,
                                  struct ddp_reducer_options *options);

/* Element @i of gradient @p in step @step, on one rank and the sum of @ranks ranks. */
double reducer_model_value(uint32_t rank, size_t step, size_t p, size_t i);
double reducer_model_sum(uint32_t ranks, size_t step, size_t p, size_t i);

/* In memory of the type of parameter @p. */
double reducer_model_read(const void *memory, size_t p, size_t i);
void reducer_model_write(void *memory, size_t p, size_t i, double value);

/* Write this rank's gradient @p of step @step. */
void reducer_model_fill(struct reducer_model *model, uint32_t rank, size_t step, size_t p);

/* Another order on each rank, and in each step. */
void reducer_model_shuffle(size_t order[PARAMETERS], uint32_t rank, size_t step);

/* A whole step, in that order. */
void reducer_model_step(ddp_reducer *reducer, struct reducer_model *model, uint32_t rank,
                        size_t step);

void reducer_model_check_value(double seen, double expected);

/* Every gradient is the sum of step @step times @factor. */
void reducer_model_check(const struct reducer_model *model, uint32_t ranks, size_t step,
                         double factor);

#endif
