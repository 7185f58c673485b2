/*
 * run.h - a whole training run on Fashion-MNIST: epochs, output, log, and ranks as threads. The
 * programs that use it differ in how a rank runs a step.
 */
#ifndef EXAMPLES_RUN_H
#define EXAMPLES_RUN_H

#include "options.h"
#include "trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Run step number @step of the epoch, on all ranks; @self comes from run_train(). On return the
 * loss and the right answers of the whole batch are in the trainer's sums, at least on rank 0. */
typedef void run_step(void *self, size_t step, double rate, double momentum);

/* Run all epochs. Rank 0 prints the progress and logs the losses. */
void run_train(struct trainer *trainer, const struct options *options, run_step *step, void *self);

void run_print_accuracy(const struct trainer *trainer, double accuracy);

/* The main function of a rank, which takes ownership of @comm. */
typedef void run_rank(ddp_comm *comm, const struct dataset *data, const struct options *options);

/* Run options->threads ranks, each in a thread; rank r uses device @devices[r]. */
void run_threads(const struct dataset *data, const struct options *options, const int *devices,
                 run_rank *rank);

#ifdef __cplusplus
}
#endif

#endif
