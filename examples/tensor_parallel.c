/*
 * tensor_parallel.c - training with each layer divided among the ranks (as in Megatron-LM, Shoeybi
 * and others, 2019).
 *
 *     cc -O3 tensor_parallel.c mlp_layers.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm) -lz -lm -o tensor_parallel
 *     ddprun --nproc-per-node=2 ./tensor_parallel --epochs 3
 *
 * Each rank has some of the hidden units: their columns of the hidden layer, and their rows of the
 * class layer. All ranks see all images.
 *
 *   forward    a rank computes its hidden units from the images, and from them its share of each
 *              class's score. One all-reduce adds up the shares.
 *   backward   all ranks know the gradients of the scores, so each computes those of its units
 *              alone. If another divided layer came before, the gradients of its outputs would need
 *              one all-reduce here: each rank has only the share of its own units.
 *
 * The loss curve is that of fashion_mnist.c, to rounding.
 */
#include "mlp_layers.h"
#include "run.h"

#include <stdlib.h>

struct tensor_parallel {
    struct trainer trainer;
    struct span units; /* this rank's hidden units */
    struct linear hidden, classes;
    float *pixels, *unit, *unit_gradient, *scores; /* of one batch */
    uint8_t *labels;
};

static void sum_over_ranks(struct tensor_parallel *self, float *values, size_t count)
{
    struct ddp_error err;
    trainer_check(
        &self->trainer,
        ddp_all_reduce(self->trainer.comm, values, values, count, DDP_FLOAT32, DDP_SUM, NULL, &err),
        &err);
}

static void tensor_step(void *context, size_t step, double rate, double momentum)
{
    struct tensor_parallel *self = context;
    struct outcome outcome = {0};
    size_t images = trainer_batch(&self->trainer, step);
    size_t values = images * (self->units.end - self->units.begin);
    span_pixels(&self->trainer, span_of_step(&self->trainer, step), self->pixels);
    span_labels(&self->trainer, span_of_step(&self->trainer, step), self->labels);

    linear_multiply(&self->hidden, self->pixels, images, self->unit);
    linear_add_bias(&self->hidden, images, self->unit);
    relu_forward(self->unit, values);
    linear_multiply(&self->classes, self->unit, images, self->scores);
    sum_over_ranks(self, self->scores, images * MLP_CLASSES);
    linear_add_bias(&self->classes, images, self->scores); /* once: after the sum */
    softmax_loss(self->scores, self->labels, images, &outcome);

    linear_backward(&self->classes, self->unit, self->scores, images, self->unit_gradient);
    relu_backward(self->unit, self->unit_gradient, values);
    linear_backward(&self->hidden, self->pixels, self->unit_gradient, images, NULL);
    linear_step(&self->hidden, (double)images, rate, momentum);
    linear_step(&self->classes, (double)images, rate, momentum);
    self->trainer.sums->loss = outcome.loss;
    self->trainer.sums->correct = outcome.correct;
}

static void tensor_open(struct tensor_parallel *self, const struct dataset *data,
                        const struct options *options)
{
    trainer_init(&self->trainer, trainer_join(), data, (size_t)options->batch);
    uint32_t ranks = self->trainer.workers;
    if (ranks > MLP_HIDDEN)
        die(EXIT_CONFIG, "there are %d hidden units for %u ranks: start at most %d ranks",
            MLP_HIDDEN, ranks, MLP_HIDDEN);
    size_t batch = self->trainer.batch;
    self->units = span_part((struct span){0, MLP_HIDDEN}, self->trainer.rank, ranks);
    mlp_init(self->trainer.model, (unsigned long)options->seed);
    hidden_open(&self->hidden, self->trainer.model, self->units);
    classes_open(&self->classes, self->trainer.model, self->units);
    self->pixels = allocate(batch * MLP_INPUTS, sizeof *self->pixels);
    self->unit = allocate(batch * self->hidden.outputs, sizeof *self->unit);
    self->unit_gradient = allocate(batch * self->hidden.outputs, sizeof *self->unit_gradient);
    self->scores = allocate(batch * MLP_CLASSES, sizeof *self->scores);
    self->labels = allocate(batch, sizeof *self->labels);
}

static void tensor_close(struct tensor_parallel *self)
{
    free(self->pixels);
    free(self->unit);
    free(self->unit_gradient);
    free(self->scores);
    free(self->labels);
    linear_close(&self->hidden);
    linear_close(&self->classes);
    trainer_finish(&self->trainer);
}

/* Put the slices together to the whole model, on all ranks, and test that. */
static double whole_accuracy(struct tensor_parallel *self)
{
    struct mlp *model = self->trainer.model;
    *model = (struct mlp){0};
    hidden_store(&self->hidden, model, self->units);
    classes_store(&self->classes, model, self->units);
    if (self->trainer.rank != 0) /* all ranks have the same class bias: count it once */
        for (size_t c = 0; c < MLP_CLASSES; c++)
            model->class_bias[c] = 0.0F;
    sum_over_ranks(self, &model->hidden_weight[0][0], MLP_FLOATS);
    return trainer_accuracy(&self->trainer);
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options_parse(&options, OPTIONS_LOSS_LOG, argc, argv);
    struct dataset data;
    struct tensor_parallel self;
    dataset_open(&data, options.data, (size_t)options.limit);
    tensor_open(&self, &data, &options);
    run_train(&self.trainer, &options, tensor_step, &self);
    run_print_accuracy(&self.trainer, whole_accuracy(&self));
    tensor_close(&self);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
