/*
 * mlp.c - the network, as plain loops over rows of 128 floats that the compiler vectorizes. Black
 * pixels contribute nothing and are skipped.
 */
#include "mlp.h"

#include <math.h>
#include <string.h>

struct activation {
    float input[MLP_INPUTS];
    float hidden[MLP_HIDDEN];
    float probability[MLP_CLASSES];
    float loss_base; /* log of the sum of exponentials, plus the maximum */
    float score[MLP_CLASSES];
};

static void add_scaled(float *restrict row, const float *restrict other, float factor)
{
    for (size_t i = 0; i < MLP_HIDDEN; i++)
        row[i] += factor * other[i];
}

static void add_to_sum(double *restrict sum, const float *restrict other, float factor)
{
    for (size_t i = 0; i < MLP_HIDDEN; i++)
        sum[i] += (double)(factor * other[i]);
}

/* Eight partial sums, so that an addition need not wait for the previous one. */
static float dot(const float *restrict a, const float *restrict b)
{
    float part[8] = {0};
    for (size_t i = 0; i < MLP_HIDDEN; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += a[i + j] * b[i + j];
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

void mlp_init(struct mlp *model, uint64_t seed)
{
    memset(model, 0, sizeof *model);
    float *weights[] = {&model->hidden_weight[0][0], &model->class_weight[0][0]};
    const size_t counts[] = {(size_t)MLP_INPUTS * MLP_HIDDEN, (size_t)MLP_CLASSES * MLP_HIDDEN};
    const float spreads[] = {sqrtf(6.0F / MLP_INPUTS), sqrtf(6.0F / MLP_HIDDEN)};
    for (size_t layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < counts[layer]; i++) {
            float unit = (float)(random_next(&seed) >> 40) / (float)(1U << 24);
            weights[layer][i] = (2.0F * unit - 1.0F) * spreads[layer];
        }
}

static void forward(const struct mlp *model, const uint8_t *pixels, struct activation *at)
{
    memcpy(at->hidden, model->hidden_bias, sizeof at->hidden);
    for (size_t i = 0; i < MLP_INPUTS; i++) {
        at->input[i] = (float)pixels[i] / 255.0F;
        if (pixels[i] != 0)
            add_scaled(at->hidden, model->hidden_weight[i], at->input[i]);
    }
    for (size_t i = 0; i < MLP_HIDDEN; i++)
        at->hidden[i] = at->hidden[i] > 0.0F ? at->hidden[i] : 0.0F;
    float highest = -INFINITY;
    for (size_t c = 0; c < MLP_CLASSES; c++) {
        at->score[c] = dot(at->hidden, model->class_weight[c]) + model->class_bias[c];
        highest = fmaxf(highest, at->score[c]);
    }
    float sum = 0.0F;
    for (size_t c = 0; c < MLP_CLASSES; c++)
        sum += at->probability[c] = expf(at->score[c] - highest);
    for (size_t c = 0; c < MLP_CLASSES; c++)
        at->probability[c] /= sum;
    at->loss_base = logf(sum) + highest;
}

static unsigned most_probable(const struct activation *at)
{
    unsigned best = 0;
    for (unsigned c = 1; c < MLP_CLASSES; c++)
        if (at->score[c] > at->score[best])
            best = c;
    return best;
}

void mlp_add_image(const struct mlp *model, const uint8_t *pixels, unsigned label,
                   struct mlp_sums *sums)
{
    struct activation at;
    forward(model, pixels, &at);
    sums->loss += (double)(at.loss_base - at.score[label]);
    sums->correct += most_probable(&at) == label ? 1.0 : 0.0;

    float hidden_gradient[MLP_HIDDEN] = {0};
    for (size_t c = 0; c < MLP_CLASSES; c++) {
        float gradient = at.probability[c] - (c == label ? 1.0F : 0.0F);
        add_scaled(hidden_gradient, model->class_weight[c], gradient);
        add_to_sum(sums->gradient.class_weight[c], at.hidden, gradient);
        sums->gradient.class_bias[c] += (double)gradient;
    }
    for (size_t i = 0; i < MLP_HIDDEN; i++)
        hidden_gradient[i] = at.hidden[i] > 0.0F ? hidden_gradient[i] : 0.0F;
    add_to_sum(sums->gradient.hidden_bias, hidden_gradient, 1.0F);
    for (size_t i = 0; i < MLP_INPUTS; i++)
        if (pixels[i] != 0)
            add_to_sum(sums->gradient.hidden_weight[i], hidden_gradient, at.input[i]);
}

void mlp_step(struct mlp *model, struct mlp *velocity, const struct mlp_sums *sums, double count,
              float rate, float momentum)
{
    float *restrict weight = &model->hidden_weight[0][0];
    float *restrict speed = &velocity->hidden_weight[0][0];
    const double *restrict slope = &sums->gradient.hidden_weight[0][0];
    for (size_t i = 0; i < MLP_FLOATS; i++) {
        speed[i] = momentum * speed[i] + (float)(slope[i] / count);
        weight[i] -= rate * speed[i];
    }
}

unsigned mlp_classify(const struct mlp *model, const uint8_t *pixels)
{
    struct activation at;
    forward(model, pixels, &at);
    return most_probable(&at);
}
