/*
 * mlp.h - a small neural network: 784 inputs, 128 hidden units (ReLU), 10 classes (softmax).
 *
 * A model is one flat buffer of floats, its gradient one flat buffer of doubles.
 */
#ifndef EXAMPLES_MLP_H
#define EXAMPLES_MLP_H

#include "idx.h"

enum { MLP_INPUTS = IMAGE_PIXELS, MLP_HIDDEN = 128, MLP_CLASSES = IMAGE_CLASSES };

#ifdef __cplusplus
extern "C" {
#endif

struct mlp {
    float hidden_weight[MLP_INPUTS][MLP_HIDDEN];
    float hidden_bias[MLP_HIDDEN];
    float class_weight[MLP_CLASSES][MLP_HIDDEN];
    float class_bias[MLP_CLASSES];
};

/* Sums over the images of a batch: the gradient, the loss and the number of right answers, so that
 * a training step needs only one all-reduce. They are doubles, because the order of the additions
 * depends on the number of workers: the rounding errors stay far below the precision of a float,
 * and the model is the same with 1, 2 or 4 workers. */
struct mlp_sums {
    struct {
        double hidden_weight[MLP_INPUTS][MLP_HIDDEN];
        double hidden_bias[MLP_HIDDEN];
        double class_weight[MLP_CLASSES][MLP_HIDDEN];
        double class_bias[MLP_CLASSES];
    } gradient;
    double loss;
    double correct;
};

enum { MLP_FLOATS = sizeof(struct mlp) / sizeof(float) };

void mlp_init(struct mlp *model, uint64_t seed);

/* Add the contribution of one image to @sums. */
void mlp_add_image(const struct mlp *model, const uint8_t *pixels, unsigned label,
                   struct mlp_sums *sums);

/* velocity = momentum * velocity + gradient / count; model -= rate * velocity. */
void mlp_step(struct mlp *model, struct mlp *velocity, const struct mlp_sums *sums, double count,
              float rate, float momentum);

/* The most probable class. */
unsigned mlp_classify(const struct mlp *model, const uint8_t *pixels);

#ifdef __cplusplus
}
#endif

#endif
