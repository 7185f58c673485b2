/*
 * run.h - a whole training run on Fashion-MNIST: epochs, output, log, and ranks that are threads.
 * The programs that use it differ in how a rank runs a step.
 */
#ifndef EXAMPLES_RUN_H
#define EXAMPLES_RUN_H

#include "options.h"
#include "trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Step number @step of the epoch, on all ranks; @self is what run_train() was given. On return the
 * loss and the right answers of the whole batch are in the trainer's sums, on rank 0 at least. */
typedef void run_step(void *self, size_t step, double rate, double momentum);

/* All epochs. Rank 0 prints how it goes, and logs the losses. */
void run_train(struct trainer *trainer, const struct options *options, run_step *step, void *self);

void run_print_accuracy(const struct trainer *trainer, double accuracy);

/* What one rank does; @comm becomes its own. */
typedef void run_rank(ddp_comm *comm, const struct dataset *data, const struct options *options);

/* Be all ranks of a world of options->threads, a thread each; rank r is for @devices[r]. */
void run_threads(const struct dataset *data, const struct options *options, const int *devices,
                 run_rank *rank);

#ifdef __cplusplus
}
#endif

#endif
