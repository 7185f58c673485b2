/*
 * mlp_layers.c - see mlp_layers.h. Computes only: the programs do the communication.
 */
#include "mlp_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size); /* one more: an empty slice has memory, too */
    if (memory == NULL)
        die(EXIT_FAILURE, "out of memory");
    return memory;
}

/* ---- parameters ---- */

static void linear_open(struct linear *layer, size_t inputs, size_t outputs)
{
    size_t count = (inputs + 1) * outputs;
    *layer = (struct linear){.inputs = inputs,
                             .outputs = outputs,
                             .count = count,
                             .weight = allocate(count, sizeof *layer->weight),
                             .velocity = allocate(count, sizeof *layer->velocity),
                             .gradient = allocate(count, sizeof *layer->gradient)};
}

void linear_close(struct linear *layer)
{
    free(layer->weight);
    free(layer->velocity);
    free(layer->gradient);
}

void hidden_open(struct linear *layer, const struct mlp *model, struct span units)
{
    linear_open(layer, MLP_INPUTS, units.end - units.begin);
    size_t width = layer->outputs;
    for (size_t i = 0; i < MLP_INPUTS; i++)
        memcpy(layer->weight + i * width, model->hidden_weight[i] + units.begin,
               width * sizeof(float));
    memcpy(layer->weight + MLP_INPUTS * width, model->hidden_bias + units.begin,
           width * sizeof(float));
}

void hidden_store(const struct linear *layer, struct mlp *model, struct span units)
{
    size_t width = layer->outputs;
    for (size_t i = 0; i < MLP_INPUTS; i++)
        memcpy(model->hidden_weight[i] + units.begin, layer->weight + i * width,
               width * sizeof(float));
    memcpy(model->hidden_bias + units.begin, layer->weight + MLP_INPUTS * width,
           width * sizeof(float));
}

void classes_open(struct linear *layer, const struct mlp *model, struct span units)
{
    linear_open(layer, units.end - units.begin, MLP_CLASSES);
    for (size_t i = 0; i < layer->inputs; i++)
        for (size_t c = 0; c < MLP_CLASSES; c++)
            layer->weight[i * MLP_CLASSES + c] = model->class_weight[c][units.begin + i];
    memcpy(layer->weight + layer->inputs * MLP_CLASSES, model->class_bias,
           sizeof model->class_bias);
}

void classes_store(const struct linear *layer, struct mlp *model, struct span units)
{
    for (size_t i = 0; i < layer->inputs; i++)
        for (size_t c = 0; c < MLP_CLASSES; c++)
            model->class_weight[c][units.begin + i] = layer->weight[i * MLP_CLASSES + c];
    memcpy(model->class_bias, layer->weight + layer->inputs * MLP_CLASSES,
           sizeof model->class_bias);
}

void linear_step(struct linear *layer, double count, double rate, double momentum)
{
    float speed_kept = (float)momentum, speed_used = (float)rate;
    for (size_t i = 0; i < layer->count; i++) {
        layer->velocity[i] = speed_kept * layer->velocity[i] + (float)(layer->gradient[i] / count);
        layer->weight[i] -= speed_used * layer->velocity[i];
    }
    memset(layer->gradient, 0, layer->count * sizeof *layer->gradient);
}

/* ---- forward and backward ---- */

void linear_multiply(const struct linear *layer, const float *input, size_t images, float *output)
{
    size_t width = layer->outputs;
    memset(output, 0, images * width * sizeof *output);
    for (size_t image = 0; image < images; image++, output += width)
        for (size_t i = 0; i < layer->inputs; i++) {
            float factor = *input++;
            const float *weight = layer->weight + i * width;
            if (factor != 0.0F) /* black pixels, and hidden units that are off */
                for (size_t j = 0; j < width; j++)
                    output[j] += factor * weight[j];
        }
}

void linear_add_bias(const struct linear *layer, size_t images, float *output)
{
    const float *bias = layer->weight + layer->inputs * layer->outputs;
    for (size_t image = 0; image < images; image++)
        for (size_t j = 0; j < layer->outputs; j++)
            *output++ += bias[j];
}

static float dot(const float *a, const float *b, size_t count)
{
    float sum = 0.0F;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_to_sum(double *sum, const float *row, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += (double)(factor * row[i]);
}

void linear_backward(struct linear *layer, const float *input, const float *output_gradient,
                     size_t images, float *input_gradient)
{
    size_t width = layer->outputs;
    for (size_t image = 0; image < images; image++, output_gradient += width) {
        for (size_t i = 0; i < layer->inputs; i++) {
            float factor = *input++;
            if (factor != 0.0F)
                add_to_sum(layer->gradient + i * width, output_gradient, factor, width);
            if (input_gradient != NULL)
                *input_gradient++ = dot(layer->weight + i * width, output_gradient, width);
        }
        add_to_sum(layer->gradient + layer->inputs * width, output_gradient, 1.0F, width);
    }
}

void relu_forward(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = values[i] > 0.0F ? values[i] : 0.0F;
}

void relu_backward(const float *values, float *gradient, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gradient[i] = values[i] > 0.0F ? gradient[i] : 0.0F;
}

void softmax_loss(float *scores, const uint8_t *labels, size_t images, struct outcome *outcome)
{
    for (size_t image = 0; image < images; image++, scores += MLP_CLASSES) {
        size_t best = 0, label = labels[image];
        for (size_t c = 1; c < MLP_CLASSES; c++)
            best = scores[c] > scores[best] ? c : best;
        float sum = 0.0F, highest = scores[best], right = scores[label];
        for (size_t c = 0; c < MLP_CLASSES; c++)
            sum += scores[c] = expf(scores[c] - highest);
        for (size_t c = 0; c < MLP_CLASSES; c++)
            scores[c] = scores[c] / sum - (c == label ? 1.0F : 0.0F);
        outcome->loss += (double)(logf(sum) + highest - right);
        outcome->correct += best == label ? 1.0 : 0.0;
    }
}

/* ---- images ---- */

struct span span_part(struct span whole, size_t index, size_t parts)
{
    size_t count = whole.end - whole.begin;
    return (struct span){whole.begin + count * index / parts,
                         whole.begin + count * (index + 1) / parts};
}

struct span span_of_step(const struct trainer *trainer, size_t step)
{
    return (struct span){trainer_images_before(trainer, step),
                         trainer_images_before(trainer, step + 1)};
}

void span_pixels(const struct trainer *trainer, struct span span, float *pixels)
{
    for (size_t i = span.begin; i < span.end; i++) {
        const uint8_t *image =
            trainer->data->train.pixels + (size_t)trainer->order[i] * IMAGE_PIXELS;
        for (size_t p = 0; p < IMAGE_PIXELS; p++)
            *pixels++ = (float)image[p] / 255.0F;
    }
}

void span_labels(const struct trainer *trainer, struct span span, uint8_t *labels)
{
    for (size_t i = span.begin; i < span.end; i++)
        *labels++ = trainer->data->train.labels[trainer->order[i]];
}
