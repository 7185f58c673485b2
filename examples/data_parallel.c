/*
 * data_parallel.c - one process with a thread for each worker, for what PyTorch's nn.DataParallel
 * is used for.
 *
 *     cc -O3 data_parallel.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm) -lz -lm -pthread -o data_parallel
 *     ./data_parallel --threads=4
 *
 * Each worker has a replica of the model and takes its part of each batch. A reducer sums the
 * gradients, so all replicas make the same update: no worker owns the model, and none waits for
 * another one to send it. This needs neither a launcher nor a store. Each thread represents a
 * device: here it computes on the CPU, in fashion_mnist_cuda.cu with --threads on a GPU.
 */
#include "run.h"

#include <stdlib.h>

enum { THREADS = 4 };

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
    options.threads = THREADS;
    options_parse(&options, OPTIONS_LOSS_LOG | OPTIONS_THREADS, argc, argv);
    struct dataset data;
    dataset_open(&data, options.data, (size_t)options.limit);
    run_threads(&data, &options, NULL, train);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
