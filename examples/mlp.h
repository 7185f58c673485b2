/*
 * mlp.h - a small neural network: 784 inputs, 128 hidden units (ReLU), 10 classes (softmax).
 *
 * Everything is floats without gaps, so a whole model or gradient is one flat buffer.
 */
#ifndef EXAMPLES_MLP_H
#define EXAMPLES_MLP_H

#include "idx.h"

enum { MLP_INPUTS = IMAGE_PIXELS, MLP_HIDDEN = 128, MLP_CLASSES = IMAGE_CLASSES };

struct mlp {
    float hidden_weight[MLP_INPUTS][MLP_HIDDEN];
    float hidden_bias[MLP_HIDDEN];
    float class_weight[MLP_CLASSES][MLP_HIDDEN];
    float class_bias[MLP_CLASSES];
};

/* Sums over the images of a batch, the loss and the number of right answers with them: so one
 * all-reduce covers all that a training step has to tell the others. */
struct mlp_sums {
    struct mlp gradient;
    float loss;
    float correct;
};

enum {
    MLP_FLOATS = sizeof(struct mlp) / sizeof(float),
    MLP_SUMS_FLOATS = sizeof(struct mlp_sums) / sizeof(float),
};

void mlp_init(struct mlp *model, uint64_t seed);

/* Add what one image contributes to @sums. */
void mlp_add_image(const struct mlp *model, const uint8_t *pixels, unsigned label,
                   struct mlp_sums *sums);

/* velocity = momentum * velocity + gradient / count; model -= rate * velocity. */
void mlp_step(struct mlp *model, struct mlp *velocity, const struct mlp *gradient, float count,
              float rate, float momentum);

/* The most probable class. */
unsigned mlp_classify(const struct mlp *model, const uint8_t *pixels);

#endif
