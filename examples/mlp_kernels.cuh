/*
 * mlp_kernels.cuh - the network of mlp.h on a GPU, with the same structs: forward pass, backward
 * pass, update. Each block computes one row of a matrix, each of its threads one element; no thread
 * waits for another. Tiles in shared memory would be faster, but five times as much code.
 *
 * A row is an image of the batch: row r is image order[r].
 */
#ifndef EXAMPLES_MLP_KERNELS_CUH
#define EXAMPLES_MLP_KERNELS_CUH

#include "mlp.h"

#include <math.h>

/* The network's output for an image, and the gradient of the loss. */
struct verdict {
    float score[MLP_CLASSES];
    float slope[MLP_CLASSES]; /* of the loss with respect to each score */
    float loss;
    float correct; /* 1 or 0 */
};

__device__ inline const uint8_t *image_of(const uint8_t *pixels, uint32_t image)
{
    return pixels + size_t(image) * IMAGE_PIXELS;
}

__device__ inline float brightness(uint8_t pixel)
{
    return float(pixel) / 255.0F;
}

/* ---- forward ---- */

/* A block for each row, a thread for each hidden unit. */
__global__ static void hidden_forward(const struct mlp *model, const uint8_t *pixels,
                                      const uint32_t *order, float *hidden)
{
    const unsigned row = blockIdx.x, unit = threadIdx.x;
    const uint8_t *image = image_of(pixels, order[row]);
    float sum = model->hidden_bias[unit];
    for (unsigned i = 0; i < MLP_INPUTS; i++)
        if (image[i] != 0)
            sum += brightness(image[i]) * model->hidden_weight[i][unit];
    hidden[row * MLP_HIDDEN + unit] = sum > 0.0F ? sum : 0.0F;
}

/* A block for each row, a thread for each class. */
__global__ static void class_forward(const struct mlp *model, const float *hidden,
                                     struct verdict *verdicts)
{
    const unsigned row = blockIdx.x, c = threadIdx.x;
    float sum = model->class_bias[c];
    for (unsigned unit = 0; unit < MLP_HIDDEN; unit++)
        sum += hidden[row * MLP_HIDDEN + unit] * model->class_weight[c][unit];
    verdicts[row].score[c] = sum;
}

/* Softmax and cross-entropy: a block of one thread for each row. */
__global__ static void judge(const uint8_t *labels, const uint32_t *order, struct verdict *verdicts)
{
    struct verdict *verdict = &verdicts[blockIdx.x];
    const unsigned label = labels[order[blockIdx.x]];
    unsigned best = 0;
    for (unsigned c = 1; c < MLP_CLASSES; c++)
        if (verdict->score[c] > verdict->score[best])
            best = c;
    const float highest = verdict->score[best];
    float sum = 0.0F;
    for (unsigned c = 0; c < MLP_CLASSES; c++)
        sum += verdict->slope[c] = expf(verdict->score[c] - highest);
    for (unsigned c = 0; c < MLP_CLASSES; c++)
        verdict->slope[c] = verdict->slope[c] / sum - (c == label ? 1.0F : 0.0F);
    verdict->loss = logf(sum) + highest - verdict->score[label];
    verdict->correct = best == label ? 1.0F : 0.0F;
}

/* ---- backward; sums over all rows, in double precision as mlp.h says ---- */

/* A block for each class, a thread for each hidden unit. */
__global__ static void class_weight_gradient(const struct verdict *verdicts, const float *hidden,
                                             unsigned rows, struct mlp_sums *sums)
{
    const unsigned c = blockIdx.x, unit = threadIdx.x;
    double sum = 0.0;
    for (unsigned row = 0; row < rows; row++)
        sum += double(verdicts[row].slope[c] * hidden[row * MLP_HIDDEN + unit]);
    sums->gradient.class_weight[c][unit] = sum;
}

/* One block: a thread for each class, and one that sums losses and right answers. */
__global__ static void class_bias_gradient(const struct verdict *verdicts, unsigned rows,
                                           struct mlp_sums *sums)
{
    const unsigned c = threadIdx.x;
    double sum = 0.0, correct = 0.0;
    for (unsigned row = 0; row < rows; row++) {
        const struct verdict *verdict = &verdicts[row];
        sum += double(c < MLP_CLASSES ? verdict->slope[c] : verdict->loss);
        correct += double(verdict->correct);
    }
    if (c < MLP_CLASSES) {
        sums->gradient.class_bias[c] = sum;
        return;
    }
    sums->loss = sum;
    sums->correct = correct;
}

/* A block for each row, a thread for each hidden unit: the slope of the loss by its input. */
__global__ static void hidden_backward(const struct mlp *model, const struct verdict *verdicts,
                                       const float *hidden, float *slopes)
{
    const unsigned row = blockIdx.x, unit = threadIdx.x;
    float sum = 0.0F;
    for (unsigned c = 0; c < MLP_CLASSES; c++)
        sum += verdicts[row].slope[c] * model->class_weight[c][unit];
    slopes[row * MLP_HIDDEN + unit] = hidden[row * MLP_HIDDEN + unit] > 0.0F ? sum : 0.0F;
}

/* A block for each pixel, and one for the bias; a thread for each hidden unit. */
__global__ static void hidden_gradient(const uint8_t *pixels, const uint32_t *order,
                                       const float *slopes, unsigned rows, struct mlp_sums *sums)
{
    const unsigned pixel = blockIdx.x, unit = threadIdx.x;
    const bool is_bias = pixel == MLP_INPUTS;
    double sum = 0.0;
    for (unsigned row = 0; row < rows; row++) {
        const float input = is_bias ? 1.0F : brightness(image_of(pixels, order[row])[pixel]);
        sum += double(input * slopes[row * MLP_HIDDEN + unit]);
    }
    if (is_bias)
        sums->gradient.hidden_bias[unit] = sum;
    else
        sums->gradient.hidden_weight[pixel][unit] = sum;
}

/* ---- step ---- */

enum { WEIGHT_THREADS = 256, WEIGHT_BLOCKS = (MLP_FLOATS + WEIGHT_THREADS - 1) / WEIGHT_THREADS };

/* As mlp_step(): a thread for each weight. */
__global__ static void descend(struct mlp *model, struct mlp *velocity, const struct mlp_sums *sums,
                               double count, float rate, float momentum)
{
    const unsigned i = blockIdx.x * WEIGHT_THREADS + threadIdx.x;
    if (i >= MLP_FLOATS)
        return;
    float *speed = &velocity->hidden_weight[0][0] + i;
    *speed = momentum * *speed + float((&sums->gradient.hidden_weight[0][0])[i] / count);
    (&model->hidden_weight[0][0])[i] -= rate * *speed;
}

#endif
