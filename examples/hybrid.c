/*
 * hybrid.c - data, pipeline and tensor parallelism at once, on a grid of ranks.
 *
 *     cc -O3 hybrid.c pipeline_stage.c mlp_layers.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm) -lz -lm -o hybrid
 *     ddprun --nproc-per-node=8 ./hybrid --epochs 3
 *
 * The grid is data x pipeline x tensor, here of 8 ranks:
 *
 *                    replica 0            replica 1        each: half of the batch
 *     hidden layer   rank 0   rank 1      rank 4   rank 5  each: half of the hidden units
 *     class layer    rank 2   rank 3      rank 6   rank 7
 *
 * A rank has a communicator along each axis:
 *   tensor     neighbours in a row: they add up their shares of the scores (tensor_parallel.c)
 *   pipeline   columns of a replica: hidden units go down, gradients come up (pipeline_stage.c). A
 *              rank's hidden units are just those that the rank below multiplies.
 *   data       the same place in all replicas: they add up their gradients, as fashion_mnist.c
 *
 * The ranks that exchange most are next to each other. The loss curve is that of fashion_mnist.c,
 * to rounding.
 */
#include "pipeline_stage.h"
#include "run.h"

#include <stdlib.h>

enum { DATA, PIPELINE, TENSOR, AXES };
enum { TENSOR_RANKS = 2, REPLICA_RANKS = STAGES * TENSOR_RANKS };

struct hybrid {
    struct trainer trainer;
    struct ddp_grid grid;
    uint32_t place[AXES]; /* of this rank in the grid */
    ddp_comm *axis[AXES];
    struct stage stage;
};

static void add_up(const struct trainer *trainer, ddp_comm *comm, void *values, size_t count)
{
    struct ddp_error err;
    trainer_check(trainer,
                  ddp_all_reduce(comm, values, values, count, DDP_FLOAT64, DDP_SUM, NULL, &err),
                  &err);
}

static void hybrid_step(void *context, size_t step, double rate, double momentum)
{
    struct hybrid *self = context;
    struct trainer *trainer = &self->trainer;
    struct linear *layer = &self->stage.layer;
    struct span batch = span_of_step(trainer, step);
    stage_run(&self->stage, span_part(batch, self->place[DATA], self->grid.dims[DATA]));
    add_up(trainer, self->axis[DATA], layer->gradient, layer->count);
    linear_step(layer, (double)trainer_batch(trainer, step), rate, momentum);

    /* All ranks of a class layer know the loss of their replica: count it once. */
    struct outcome outcome = {0};
    if (self->place[TENSOR] == 0)
        outcome = self->stage.outcome;
    add_up(trainer, trainer->comm, &outcome, OUTCOME_DOUBLES);
    trainer->sums->loss = outcome.loss;
    trainer->sums->correct = outcome.correct;
}

/* Find this rank's place in the grid, and make the communicators along its axes. */
static void hybrid_place(struct hybrid *self)
{
    struct trainer *trainer = &self->trainer;
    if (trainer->workers % REPLICA_RANKS != 0)
        die(EXIT_CONFIG,
            "a replica of the model takes %d ranks (%d stages of %d), and there are %u: start a "
            "multiple of %d",
            REPLICA_RANKS, STAGES, TENSOR_RANKS, trainer->workers, REPLICA_RANKS);
    struct ddp_error err;
    uint32_t dims[AXES] = {trainer->workers / REPLICA_RANKS, STAGES, TENSOR_RANKS};
    trainer_check(trainer, ddp_grid_init(&self->grid, dims, AXES, &err), &err);
    trainer_check(trainer, ddp_grid_coords(&self->grid, trainer->rank, self->place, &err), &err);
    for (uint32_t axis = 0; axis < AXES; axis++)
        trainer_check(
            trainer,
            ddp_comm_split_grid(trainer->comm, &self->grid, &axis, 1, &self->axis[axis], &err),
            &err);
}

static void hybrid_train(struct hybrid *self, const struct options *options)
{
    struct trainer *trainer = &self->trainer;
    hybrid_place(self);
    mlp_init(trainer->model, (unsigned long)options->seed);
    uint32_t replicas = self->grid.dims[DATA];
    stage_open(&self->stage, trainer, self->axis[PIPELINE], self->axis[TENSOR],
               (trainer->batch + replicas - 1) / replicas);
    run_train(trainer, options, hybrid_step, self);
    stage_assemble(&self->stage, self->place[DATA] == 0);
    run_print_accuracy(trainer, trainer_accuracy(trainer));
    stage_close(&self->stage);
    for (uint32_t axis = 0; axis < AXES; axis++)
        ddp_comm_destroy(self->axis[axis]);
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options_parse(&options, OPTIONS_LOSS_LOG, argc, argv);
    struct dataset data;
    struct hybrid self;
    dataset_open(&data, options.data, (size_t)options.limit);
    trainer_init(&self.trainer, trainer_join(), &data, (size_t)options.batch);
    hybrid_train(&self, &options);
    trainer_finish(&self.trainer);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
