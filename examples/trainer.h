/*
 * trainer.h - data-parallel training of mlp.h, shared by the training programs: data, communicator,
 * steps on a global batch, and the test.
 *
 * All workers share one global batch per step. Each adds up the gradients of its part, a reducer
 * sums the parts, and every worker makes the same update. The images of a batch depend
 * only on seed and step, so the result does not depend on the number of workers.
 */
#ifndef EXAMPLES_TRAINER_H
#define EXAMPLES_TRAINER_H

#include "mlp.h"

#include <ddprun/ddp.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is reduced, in the order in which a backward pass completes it. */
enum gradient { VERDICT, CLASS_BIAS, CLASS_WEIGHT, HIDDEN_BIAS, HIDDEN_WEIGHT, GRADIENTS };

enum { EXIT_USAGE = 2, EXIT_UNAVAILABLE = 69, EXIT_CONFIG = 78 };

struct dataset {
    struct images train, test;
};

struct trainer {
    ddp_comm *comm;
    uint32_t rank, workers;
    const struct dataset *data; /* not owned: shared by the ranks of a process */
    uint32_t *order;            /* of the training images in this epoch */
    struct mlp *model, *velocity;
    struct mlp_sums *sums; /* of the last step */
    ddp_reducer *reducer;  /* of the sums; NULL before trainer_share() */
    size_t batch;          /* images per step, over all workers */
    size_t steps_per_epoch;
};

/* Print a line that begins with the program's name, and exit. */
__attribute__((format(printf, 2, 3), noreturn)) void die(int code, const char *format, ...);

/* The value of option --@name; exits with an error if it is invalid. */
long whole_number(const char *name, const char *text, long min, long max);
double real_number(const char *name, const char *text, double max);

/* Read the images from @folder, or generate them if it is NULL. @limit: at most this many training
 * images, unless 0. */
void dataset_open(struct dataset *data, const char *folder, size_t limit);
void dataset_close(struct dataset *data);

/* Create the communicator that the environment describes. */
ddp_comm *trainer_join(void);

/* Takes ownership of @comm. @data must outlive @trainer. */
void trainer_init(struct trainer *trainer, ddp_comm *comm, const struct dataset *data,
                  size_t batch);
void trainer_finish(struct trainer *trainer);

/* Checks a result of the library; exits with an error unless it is DDP_OK. */
void trainer_check(const struct trainer *trainer, ddp_status status, const struct ddp_error *err);

/* Give all ranks rank 0's model and velocity, and create the reducer: steps may follow. */
void trainer_share(struct trainer *trainer);

/* Create the reducer of @sums, a struct mlp_sums in host memory, or on a GPU with @on_device. */
void trainer_open_reducer(struct trainer *trainer, void *sums, bool on_device);

/* Shuffle the images into the order of @epoch. */
void trainer_shuffle(struct trainer *trainer, unsigned long seed, size_t epoch);

/* The number of images in the steps of an epoch before @step, and in @step. */
size_t trainer_images_before(const struct trainer *trainer, size_t step);
size_t trainer_batch(const struct trainer *trainer, size_t step);

/* This rank's images of @step: positions *@ret_begin to before *@ret_end of the order. */
void trainer_part(const struct trainer *trainer, size_t step, size_t *ret_begin, size_t *ret_end);

/* Compute the sums of this rank's part of @step. */
void trainer_add_up(struct trainer *trainer, size_t step);

/* Run step number @step of the epoch: add up, reduce, update the weights. @self is a trainer: this
 * is a run_step of run.h. */
void trainer_step(void *self, size_t step, double rate, double momentum);

/* The accuracy on the test images; each worker classifies a part of them. */
double trainer_accuracy(struct trainer *trainer);

#ifdef __cplusplus
}
#endif

#endif
