/*
 * trainer.c - the steps that the training programs share. Any failure ends the process; the
 * launcher decides what happens to the job.
 */
#define _GNU_SOURCE 1 /* program_invocation_short_name */
#include "trainer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYNTHETIC_TRAIN = 12000, SYNTHETIC_TEST = 2000 };
enum { HIDDEN_WEIGHTS = MLP_INPUTS * MLP_HIDDEN, CLASS_WEIGHTS = MLP_CLASSES * MLP_HIDDEN };

void die(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(code);
}

long whole_number(const char *name, const char *text, long min, long max)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max)
        die(EXIT_USAGE, "--%s: '%s' is not a whole number from %ld to %ld", name, text, min, max);
    return value;
}

double real_number(const char *name, const char *text, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.0 && value <= max))
        die(EXIT_USAGE, "--%s: '%s' is not a number from 0 to %g", name, text, max);
    return value;
}

void dataset_open(struct dataset *data, const char *folder, size_t limit)
{
    *data = (struct dataset){0};
    if (folder == NULL) {
        if (!images_make_up(2, limit != 0 ? limit : SYNTHETIC_TRAIN, &data->train) ||
            !images_make_up(3, SYNTHETIC_TEST, &data->test))
            die(EXIT_FAILURE, "out of memory");
        return;
    }
    char why[4500];
    if (!images_read(folder, "train", limit, &data->train, why, sizeof why) ||
        !images_read(folder, "t10k", 0, &data->test, why, sizeof why))
        die(EXIT_CONFIG,
            "%s\nGet the data set with 'apt-get install dataset-fashion-mnist', name its folder "
            "with --data, or use --synthetic.",
            why);
}

void dataset_close(struct dataset *data)
{
    images_free(&data->train);
    images_free(&data->test);
}

ddp_comm *trainer_join(void)
{
    struct ddp_error err;
    ddp_comm *comm;
    ddp_status status = ddp_comm_init(NULL, &comm, &err);
    if (status != DDP_OK)
        die(status == DDP_E_INVALID ? EXIT_CONFIG : EXIT_FAILURE, "%s (%s)", err.msg,
            ddp_status_name(status));
    return comm;
}

void trainer_init(struct trainer *trainer, ddp_comm *comm, const struct dataset *data, size_t batch)
{
    *trainer = (struct trainer){.comm = comm,
                                .rank = ddp_comm_rank(comm),
                                .workers = ddp_comm_world_size(comm),
                                .data = data,
                                .batch = batch};
    trainer->order = malloc(data->train.count * sizeof *trainer->order);
    trainer->model = malloc(sizeof *trainer->model);
    trainer->velocity = calloc(1, sizeof *trainer->velocity);
    trainer->sums = malloc(sizeof *trainer->sums);
    if (trainer->order == NULL || trainer->model == NULL || trainer->velocity == NULL ||
        trainer->sums == NULL)
        die(EXIT_FAILURE, "out of memory");
    trainer->steps_per_epoch = (data->train.count + batch - 1) / batch;
}

void trainer_finish(struct trainer *trainer)
{
    ddp_reducer_destroy(trainer->reducer);
    ddp_comm_destroy(trainer->comm);
    free(trainer->order);
    free(trainer->model);
    free(trainer->velocity);
    free(trainer->sums);
}

void trainer_check(const struct trainer *trainer, ddp_status status, const struct ddp_error *err)
{
    if (status != DDP_OK)
        die(EXIT_FAILURE, "rank %u: %s (%s)", trainer->rank, err->msg, ddp_status_name(status));
}

/* A reducer lays gradients out in the reverse of their order: as they lie in struct mlp_sums. The
 * output layer is one bucket, the hidden layer another. */
void trainer_open_reducer(struct trainer *trainer, void *sums, bool on_device)
{
    static const struct ddp_parameter gradients[GRADIENTS] = {
        [VERDICT] = {"loss and right answers", .count = 2, .dtype = DDP_FLOAT64},
        [CLASS_BIAS] = {"class_bias", .count = MLP_CLASSES, .dtype = DDP_FLOAT64},
        [CLASS_WEIGHT] = {"class_weight", .count = CLASS_WEIGHTS, .dtype = DDP_FLOAT64},
        [HIDDEN_BIAS] = {"hidden_bias", .count = MLP_HIDDEN, .dtype = DDP_FLOAT64},
        [HIDDEN_WEIGHT] = {"hidden_weight", .count = HIDDEN_WEIGHTS, .dtype = DDP_FLOAT64},
    };
    const size_t bucket_bytes = CLASS_WEIGHTS * sizeof(double);
    const struct ddp_reducer_options options = {.size = sizeof options,
                                                .parameters = gradients,
                                                .nparameters = GRADIENTS,
                                                .bucket_bytes = &bucket_bytes,
                                                .nbucket_bytes = 1,
                                                .average = DDP_REDUCER_SUM,
                                                .as_views = 1,
                                                .view_memory = sums,
                                                .on_device = on_device};
    struct ddp_error err;
    trainer_check(trainer, ddp_reducer_create(trainer->comm, &options, &trainer->reducer, &err),
                  &err);
}

void trainer_share(struct trainer *trainer)
{
    struct mlp *const shared[] = {trainer->model, trainer->velocity};
    struct ddp_error err;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        trainer_check(
            trainer,
            ddp_broadcast(trainer->comm, shared[i], MLP_FLOATS, DDP_FLOAT32, 0, NULL, &err), &err);
    trainer_open_reducer(trainer, trainer->sums, false);
}

/* The same shuffle on every worker, without communication. */
void trainer_shuffle(struct trainer *trainer, unsigned long seed, size_t epoch)
{
    uint64_t state = seed * 1000003U + (uint64_t)epoch;
    for (uint32_t i = 0; i < trainer->data->train.count; i++)
        trainer->order[i] = i;
    for (size_t i = trainer->data->train.count - 1; i > 0; i--) {
        size_t j = random_next(&state) % (i + 1);
        uint32_t swap = trainer->order[i];
        trainer->order[i] = trainer->order[j];
        trainer->order[j] = swap;
    }
}

size_t trainer_images_before(const struct trainer *trainer, size_t step)
{
    return step < trainer->steps_per_epoch ? step * trainer->batch : trainer->data->train.count;
}

size_t trainer_batch(const struct trainer *trainer, size_t step)
{
    return trainer_images_before(trainer, step + 1) - trainer_images_before(trainer, step);
}

void trainer_part(const struct trainer *trainer, size_t step, size_t *ret_begin, size_t *ret_end)
{
    size_t first = trainer_images_before(trainer, step), batch = trainer_batch(trainer, step);
    *ret_begin = first + batch * trainer->rank / trainer->workers;
    *ret_end = first + batch * (trainer->rank + 1) / trainer->workers;
}

void trainer_add_up(struct trainer *trainer, size_t step)
{
    const struct images *train = &trainer->data->train;
    size_t begin, end;
    trainer_part(trainer, step, &begin, &end);
    memset(trainer->sums, 0, sizeof *trainer->sums);
    for (size_t i = begin; i < end; i++) {
        size_t image = trainer->order[i];
        mlp_add_image(trainer->model, train->pixels + image * IMAGE_PIXELS, train->labels[image],
                      trainer->sums);
    }
}

void trainer_step(void *self, size_t step, double rate, double momentum)
{
    struct trainer *trainer = self;
    struct ddp_error err;
    trainer_check(trainer, ddp_reducer_begin(trainer->reducer, &err), &err);
    trainer_add_up(trainer, step);
    for (size_t i = 0; i < GRADIENTS; i++)
        trainer_check(trainer, ddp_reducer_ready(trainer->reducer, i, NULL, &err), &err);
    trainer_check(trainer, ddp_reducer_finish(trainer->reducer, &err), &err);
    mlp_step(trainer->model, trainer->velocity, trainer->sums, (double)trainer_batch(trainer, step),
             (float)rate, (float)momentum);
}

double trainer_accuracy(struct trainer *trainer)
{
    const struct images *test = &trainer->data->test;
    int64_t correct = 0;
    for (size_t i = trainer->rank; i < test->count; i += trainer->workers)
        correct += mlp_classify(trainer->model, test->pixels + i * IMAGE_PIXELS) == test->labels[i];
    struct ddp_error err;
    trainer_check(
        trainer,
        ddp_all_reduce(trainer->comm, &correct, &correct, 1, DDP_INT64, DDP_SUM, NULL, &err), &err);
    return (double)correct / (double)test->count;
}
