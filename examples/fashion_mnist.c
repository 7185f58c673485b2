/*
 * fashion_mnist.c - data-parallel training of a small network on Fashion-MNIST.
 *
 *     cc -O3 fashion_mnist.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm) -lz -lm -o fashion_mnist
 *     ddprun --nproc-per-node=2 ./fashion_mnist --epochs 3
 *
 * All workers start with the weights of rank 0. The batches and the loss curve do not depend on the
 * number of workers (trainer.h). Besides the C library it needs only libddpcomm and zlib.
 * fashion_mnist_cuda.cu does the same on GPUs, data_parallel.c with threads as workers.
 */
#include "run.h"

#include <stdlib.h>

static void train(ddp_comm *comm, const struct dataset *data, const struct options *options)
{
    struct trainer trainer;
    trainer_init(&trainer, comm, data, (size_t)options->batch);
    if (trainer.rank == 0)
        mlp_init(trainer.model, (unsigned long)options->seed);
    trainer_share(&trainer);
    run_train(&trainer, options, trainer_step, &trainer);
    run_print_accuracy(&trainer, trainer_accuracy(&trainer));
    trainer_finish(&trainer);
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options_parse(&options, OPTIONS_LOSS_LOG, argc, argv);
    struct dataset data;
    dataset_open(&data, options.data, (size_t)options.limit);
    train(trainer_join(), &data, &options);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
