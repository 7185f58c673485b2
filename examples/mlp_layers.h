/*
 * mlp_layers.h - the network of mlp.h as two layers, or slices of them, for the programs that
 * divide a model among ranks: pipeline.c, tensor_parallel.c and hybrid.c.
 *
 * A rank owns the weights of its slice only. All functions work on many images at once: a matrix
 * has a row for each image.
 */
#ifndef EXAMPLES_MLP_LAYERS_H
#define EXAMPLES_MLP_LAYERS_H

#include "trainer.h"

/* A linear layer. Its parameters are a matrix of @inputs rows and @outputs columns, and one more
 * row, the bias. The gradients are sums over images, in doubles for the reason given in mlp.h. */
struct linear {
    size_t inputs, outputs;
    size_t count; /* of parameters */
    float *weight, *velocity;
    double *gradient;
};

/* The images at the positions @begin to before @end of the epoch's order. */
struct span {
    size_t begin, end;
};

/* What a program reports of a step: sums over its images. */
struct outcome {
    double loss, correct;
};
enum { OUTCOME_DOUBLES = 2 };

/* The columns of hidden units @units of @model's hidden layer; and the rows of these units of its
 * class layer, with the whole bias. Free both with linear_close(). */
void hidden_open(struct linear *layer, const struct mlp *model, struct span units);
void classes_open(struct linear *layer, const struct mlp *model, struct span units);
void linear_close(struct linear *layer);

/* The way back: copy the parameters into their places in @model. */
void hidden_store(const struct linear *layer, struct mlp *model, struct span units);
void classes_store(const struct linear *layer, struct mlp *model, struct span units);

/* @output = @input * weights. The bias is a call of its own, since it is added only once to the sum
 * of products that the slices of a layer make. */
void linear_multiply(const struct linear *layer, const float *input, size_t images, float *output);
void linear_add_bias(const struct linear *layer, size_t images, float *output);

/* Add the gradients of @images to the layer's, and pass the gradient on to the layer before, unless
 * @input_gradient is NULL. */
void linear_backward(struct linear *layer, const float *input, const float *output_gradient,
                     size_t images, float *input_gradient);

/* The update of mlp_step(), with the sums over @count images. Then the gradients are 0 again. */
void linear_step(struct linear *layer, double count, double rate, double momentum);

/* Replace negative values by 0; and the gradients of those values. */
void relu_forward(float *values, size_t count);
void relu_backward(const float *values, float *gradient, size_t count);

/* Add loss and right answers to *@outcome, and replace the scores by their gradients. */
void softmax_loss(float *scores, const uint8_t *labels, size_t images, struct outcome *outcome);

/* Part @index of @parts parts of @whole, which differ by 1 at most. */
struct span span_part(struct span whole, size_t index, size_t parts);

/* All images of @step. */
struct span span_of_step(const struct trainer *trainer, size_t step);

/* Copy the images, with values from 0 to 1, or their labels. */
void span_pixels(const struct trainer *trainer, struct span span, float *pixels);
void span_labels(const struct trainer *trainer, struct span span, uint8_t *labels);

/* Memory of @count * @size bytes, or the end of the process. */
void *allocate(size_t count, size_t size);

#endif
