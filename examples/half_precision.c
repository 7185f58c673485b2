/*
 * half_precision.c - fashion_mnist.c in mixed precision, as Apex's level O2 and torch.amp do it.
 *
 *     cc -O3 half_precision.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm) -lz -lm -o half_precision
 *     ddprun --nproc-per-node=2 ./half_precision --epochs 3
 *
 * Weights and gradients are float16, so half as many bytes are reduced. The optimizer works on
 * master weights, which are float32: its steps are often too small to change a float16. A loss
 * scaler keeps small gradients above the smallest float16; a step whose gradients overflow is
 * skipped, on all ranks alike, as the reducer looks for inf and NaN in the sums.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

struct half_trainer {
    struct trainer trainer; /* its model has the weights, widened for the arithmetic */
    struct mlp *master;
    _Float16 *weights, *gradients; /* MLP_FLOATS each */
    ddp_reducer *reducer;
    struct ddp_loss_scaler scaler;
    size_t skipped;
};

/* The weights are the master weights, rounded. */
static void round_weights(struct half_trainer *self)
{
    const float *master = &self->master->hidden_weight[0][0];
    float *model = &self->trainer.model->hidden_weight[0][0];
    for (size_t i = 0; i < MLP_FLOATS; i++) {
        self->weights[i] = (_Float16)master[i];
        model[i] = (float)self->weights[i];
    }
}

static void open_half(struct half_trainer *self, ddp_comm *comm, const struct dataset *data,
                      const struct options *options)
{
    struct ddp_error err;
    *self = (struct half_trainer){.scaler = {.size = sizeof self->scaler}};
    trainer_init(&self->trainer, comm, data, (size_t)options->batch);
    self->master = malloc(sizeof *self->master);
    self->weights = malloc(MLP_FLOATS * sizeof *self->weights);
    self->gradients = malloc(MLP_FLOATS * sizeof *self->gradients);
    if (self->master == NULL || self->weights == NULL || self->gradients == NULL)
        die(EXIT_FAILURE, "out of memory");
    mlp_init(self->master, (unsigned long)options->seed);
    trainer_check(&self->trainer,
                  ddp_broadcast(comm, self->master, MLP_FLOATS, DDP_FLOAT32, 0, NULL, &err), &err);
    round_weights(self);
    const struct ddp_parameter weights = {"weights", .gradient = self->gradients,
                                          .count = MLP_FLOATS, .dtype = DDP_FLOAT16};
    const struct ddp_reducer_options reducer = {.size = sizeof reducer,
                                                .parameters = &weights,
                                                .nparameters = 1,
                                                .average = DDP_REDUCER_SUM,
                                                .check_finite = 1};
    trainer_check(&self->trainer, ddp_reducer_create(comm, &reducer, &self->reducer, &err), &err);
    trainer_check(&self->trainer, ddp_loss_scaler_init(&self->scaler, DDP_SCALER_TORCH, &err),
                  &err);
}

static void close_half(struct half_trainer *self)
{
    ddp_reducer_destroy(self->reducer);
    trainer_finish(&self->trainer);
    free(self->master);
    free(self->weights);
    free(self->gradients);
}

/* This rank's share of the mean gradient of the scaled loss. */
static void halve_gradients(struct half_trainer *self, double images)
{
    const double *slope = &self->trainer.sums->gradient.hidden_weight[0][0];
    for (size_t i = 0; i < MLP_FLOATS; i++)
        self->gradients[i] = (_Float16)(slope[i] / images * (double)self->scaler.scale);
}

static void step_master(struct half_trainer *self, float unscale, float rate, float momentum)
{
    float *weight = &self->master->hidden_weight[0][0];
    float *speed = &self->trainer.velocity->hidden_weight[0][0];
    for (size_t i = 0; i < MLP_FLOATS; i++) {
        speed[i] = momentum * speed[i] + (float)self->gradients[i] * unscale;
        weight[i] -= rate * speed[i];
    }
    round_weights(self);
}

static void train_step(void *argument, size_t step, double rate, double momentum)
{
    struct half_trainer *self = argument;
    struct trainer *trainer = &self->trainer;
    struct mlp_sums *sums = trainer->sums;
    struct ddp_error err;
    trainer_check(trainer, ddp_reducer_begin(self->reducer, &err), &err);
    trainer_add_up(trainer, step);
    halve_gradients(self, (double)trainer_batch(trainer, step));
    trainer_check(trainer, ddp_reducer_ready(self->reducer, 0, NULL, &err), &err);
    trainer_check(trainer, ddp_reducer_finish(self->reducer, &err), &err);
    trainer_check(trainer,
                  ddp_all_reduce(trainer->comm, &sums->loss, &sums->loss, 2, DDP_FLOAT64, DDP_SUM,
                                 NULL, &err),
                  &err); /* and the right answers, which lie behind it */
    float unscale = ddp_loss_scaler_inverse(&self->scaler);
    if (ddp_loss_scaler_update(&self->scaler, ddp_reducer_non_finite(self->reducer)))
        step_master(self, unscale, (float)rate, (float)momentum);
    else
        self->skipped++;
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options_parse(&options, OPTIONS_LOSS_LOG, argc, argv);
    struct dataset data;
    struct half_trainer half;
    dataset_open(&data, options.data, (size_t)options.limit);
    open_half(&half, trainer_join(), &data, &options);
    run_train(&half.trainer, &options, train_step, &half);
    if (half.trainer.rank == 0)
        printf("scale %g, %zu steps skipped\n", (double)half.scaler.scale, half.skipped);
    run_print_accuracy(&half.trainer, trainer_accuracy(&half.trainer));
    close_half(&half);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
