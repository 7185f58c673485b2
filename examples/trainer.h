/*
 * trainer.h - data-parallel training of mlp.h, shared by the training programs: the data, the
 * communicator, one step on a global batch, the test.
 *
 * All workers share one global batch per step. Each adds up the gradients of its part, one
 * all-reduce sums the parts, and every worker makes the same update. The images of a batch depend
 * only on seed and step, so the result does not depend on the number of workers.
 */
#ifndef EXAMPLES_TRAINER_H
#define EXAMPLES_TRAINER_H

#include "mlp.h"

#include <ddprun/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EXIT_USAGE = 2, EXIT_UNAVAILABLE = 69, EXIT_CONFIG = 78 };

struct dataset {
    struct images train, test;
};

struct trainer {
    ddp_comm *comm;
    uint32_t rank, workers;
    const struct dataset *data; /* not ours: the ranks of one process share it */
    uint32_t *order;            /* of the training images in this epoch */
    struct mlp *model, *velocity;
    struct mlp_sums *sums; /* of the last step */
    size_t batch;          /* images a step, of all workers together */
    size_t steps_per_epoch;
};

/* Print a line with the program's name in front, and exit. */
__attribute__((format(printf, 2, 3), noreturn)) void die(int code, const char *format, ...);

/* The value of option --@name, or exit with a sentence. */
long whole_number(const char *name, const char *text, long min, long max);
double real_number(const char *name, const char *text, double max);

/* From @folder, or made up if that is NULL; at most @limit images for training, if that is not 0.
 */
void dataset_open(struct dataset *data, const char *folder, size_t limit);
void dataset_close(struct dataset *data);

/* The communicator that the environment describes. */
ddp_comm *trainer_join(void);

/* Takes @comm over; keeps @data, which stays the caller's. */
void trainer_init(struct trainer *trainer, ddp_comm *comm, const struct dataset *data,
                  size_t batch);
void trainer_finish(struct trainer *trainer);

/* Every result of the library goes through here: what is not DDP_OK is the end. */
void trainer_check(const struct trainer *trainer, ddp_status status, const struct ddp_error *err);

/* What rank 0 has of both, to all. */
void trainer_share(struct trainer *trainer, struct mlp *model);

/* Put the images into the order of @epoch. */
void trainer_shuffle(struct trainer *trainer, unsigned long seed, size_t epoch);

/* How many images the steps of an epoch before @step had, and how many @step has. */
size_t trainer_images_before(const struct trainer *trainer, size_t step);
size_t trainer_batch(const struct trainer *trainer, size_t step);

/* The images of @step that are this rank's: from *@ret_begin in the order up to *@ret_end. */
void trainer_part(const struct trainer *trainer, size_t step, size_t *ret_begin, size_t *ret_end);

/* Fill sums with what this rank's part of @step contributes. */
void trainer_add_up(struct trainer *trainer, size_t step);

/* Step number @step of the epoch: add up, all-reduce, move the weights. */
void trainer_step(struct trainer *trainer, size_t step, double rate, double momentum);

/* On the test images, of which each worker looks at a part. */
double trainer_accuracy(struct trainer *trainer);

#ifdef __cplusplus
}
#endif

#endif
