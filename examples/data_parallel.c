/*
 * data_parallel.c - one process with a thread for each worker, like PyTorch's nn.DataParallel.
 *
 *     data_parallel --threads=4
 *
 * Worker 0 owns the model. In each step a broadcast replicates it, each worker runs the forward and
 * backward pass on its part of the batch, a reduction sums the gradients on worker 0, and worker 0
 * updates the weights. This needs neither a launcher nor a store. Each thread represents a device:
 * here it computes on the CPU, in fashion_mnist_cuda.cu with --threads on a GPU.
 */
#include "run.h"

#include <stdlib.h>

enum { THREADS = 4, OWNER = 0 };

static void train_step(void *self, size_t step, double rate, double momentum)
{
    struct trainer *trainer = self;
    struct mlp_sums *sums = trainer->sums;
    struct ddp_error err;
    trainer_share(trainer, trainer->model);
    trainer_add_up(trainer, step);
    trainer_check(trainer,
                  ddp_reduce(trainer->comm, sums, sums, MLP_SUMS_DOUBLES, DDP_FLOAT64, DDP_SUM,
                             OWNER, NULL, &err),
                  &err);
    if (trainer->rank == OWNER)
        mlp_step(trainer->model, trainer->velocity, sums, (double)trainer_batch(trainer, step),
                 (float)rate, (float)momentum);
}

static void train(ddp_comm *comm, const struct dataset *data, const struct options *options)
{
    struct trainer trainer;
    trainer_init(&trainer, comm, data, (size_t)options->batch);
    if (trainer.rank == OWNER)
        mlp_init(trainer.model, (unsigned long)options->seed);
    run_train(&trainer, options, train_step, &trainer);
    trainer_share(&trainer, trainer.model);
    run_print_accuracy(&trainer, trainer_accuracy(&trainer));
    trainer_finish(&trainer);
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options.threads = THREADS;
    options_parse(&options, OPTIONS_LOSS_LOG | OPTIONS_THREADS, argc, argv);
    struct dataset data;
    dataset_open(&data, options.data, (size_t)options.limit);
    run_threads(&data, &options, NULL, train);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
