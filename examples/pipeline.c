/*
 * pipeline.c - training with a layer on each of two ranks, and micro-batches that pass through
 * both.
 *
 *     cc -O3 pipeline.c pipeline_stage.c mlp_layers.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm) -lz -lm -o pipeline
 *     ddprun --nproc-per-node=2 ./pipeline --epochs 3
 *
 * The messages and their schedule are in pipeline_stage.c. The loss curve is that of
 * fashion_mnist.c, to rounding.
 */
#include "pipeline_stage.h"
#include "run.h"

#include <stdlib.h>

struct pipeline {
    struct trainer trainer;
    struct stage stage;
};

static void pipeline_step(void *context, size_t step, double rate, double momentum)
{
    struct pipeline *self = context;
    struct trainer *trainer = &self->trainer;
    struct ddp_error err;
    stage_run(&self->stage, span_of_step(trainer, step));
    linear_step(&self->stage.layer, (double)trainer_batch(trainer, step), rate, momentum);

    /* The last stage knows the loss, rank 0 prints it. */
    struct outcome outcome = self->stage.outcome;
    trainer_check(trainer,
                  ddp_all_reduce(trainer->comm, &outcome, &outcome, OUTCOME_DOUBLES, DDP_FLOAT64,
                                 DDP_SUM, NULL, &err),
                  &err);
    trainer->sums->loss = outcome.loss;
    trainer->sums->correct = outcome.correct;
}

static void pipeline_train(struct pipeline *self, const struct options *options)
{
    struct trainer *trainer = &self->trainer;
    if (trainer->workers != STAGES)
        die(EXIT_CONFIG, "the pipeline has %d stages, and there are %u ranks: start %d", STAGES,
            trainer->workers, STAGES);
    mlp_init(trainer->model, (unsigned long)options->seed);
    stage_open(&self->stage, trainer, trainer->comm, NULL, trainer->batch);
    run_train(trainer, options, pipeline_step, self);
    stage_assemble(&self->stage, true);
    run_print_accuracy(trainer, trainer_accuracy(trainer));
    stage_close(&self->stage);
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options_parse(&options, OPTIONS_LOSS_LOG, argc, argv);
    struct dataset data;
    struct pipeline self;
    dataset_open(&data, options.data, (size_t)options.limit);
    trainer_init(&self.trainer, trainer_join(), &data, (size_t)options.batch);
    pipeline_train(&self, &options);
    trainer_finish(&self.trainer);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
